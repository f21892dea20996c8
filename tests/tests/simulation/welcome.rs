//! Links that break in the middle of the way back: the gateway has taken the session back and the agent does not know.

use std::time::Duration;

use bytes::Bytes;
use gateway_agents::admission::Candidate;
use gateway_agents::registry::Subject;
use http_body_util::Empty;
use tunnel_link::grpc::{Code, FrameReader};
use tunnel_proto::hello::{Hello, HostMode, Resume, Role};
use tunnel_proto::limit::{OPEN_CREDIT_BYTES, RESUME_ANSWER_TIMEOUT};
use tunnel_proto::mux::Side;
use tunnel_proto::version;

use crate::gateway_host::Gateway;
use crate::middle::Cut;
use crate::net::{SOON, for_seeds};
use crate::resume::{BACK, behind_middle, goes_on, is_down, up_again};
use crate::user;

#[test]
fn welcomes_that_are_lost_leave_the_way_back_open_and_the_next_secret_works_too() {
    for_seeds(0..8, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        let lost = 1 + seed % 4;
        net.shared.middle.swallow_answers(true);
        for lost in 1..=lost {
            net.shared.middle.cut(Cut::Both);
            net.note("cut");
            net.until("the gateway took the session back", 2 * BACK, |shared| {
                shared.newest("well", Side::Gateway).expect("a session").session.stats().links == 1 + lost
            });
            let more = net.rolls.millis(0, 1_000);
            net.run(more);
            assert!(is_down(&net.shared, Side::Agent), "it was not told");
        }
        net.shared.middle.swallow_answers(false);
        for again in 1..=2 {
            net.shared.middle.cut(Cut::Both);
            net.note("cut");
            up_again(&mut net, [lost + again, again], 2 * BACK);
        }
        let moved = net.wait("the work ends", SOON, &work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 30_000), "{moved:?}");
        goes_on(&mut net, generation);
        net.finish();
    });
}

#[test]
fn welcome_that_is_lost_in_silence_costs_little_of_the_grace_and_nothing_else() {
    for_seeds(0..2, |seed| {
        let (mut net, generation) = behind_middle(seed);
        let work = net.user("well", |session| user::slowly(session, Duration::from_secs(2)));
        net.run(Duration::from_millis(300));
        net.shared.middle.swallow_answers(true);
        net.shared.middle.cut(Cut::Both);
        net.until("the gateway took the session back", 2 * BACK, |shared| {
            shared.newest("well", Side::Gateway).expect("a session").session.stats().links == 2
        });
        net.shared.middle.swallow_answers(false);
        up_again(&mut net, [2, 1], RESUME_ANSWER_TIMEOUT + BACK);
        let moved = net.wait("the work ends", SOON, &work);
        assert!(moved.is_ok_and(|(bytes, _)| bytes > 30_000), "{moved:?}");
        goes_on(&mut net, generation);
        net.finish();
    });
}

#[test]
fn earlier_secrets_open_nothing_once_the_next_one_has_arrived() {
    for_seeds(0..2, |seed| {
        let (mut net, generation) = behind_middle(seed);
        for again in 1..=3 {
            net.shared.middle.cut(Cut::Both);
            up_again(&mut net, [again, again], 2 * BACK);
        }
        net.run(Duration::from_millis(200));
        let mut resumes = std::mem::take(&mut *net.shared.resumes.lock().unwrap());
        assert_eq!(resumes.len(), 4);
        let newest = resumes.pop().expect("four");
        for resume in resumes {
            let tried = net.on_gateway(|gateway| async move { try_to_resume(&gateway, resume) });
            assert_eq!(net.wait("an answer", SOON, &tried), Err(Code::PermissionDenied));
        }
        goes_on(&mut net, generation);
        assert_eq!(net.links("well"), [4, 4], "nobody noticed");
        let received = net.shared.newest("well", Side::Agent).expect("a session").session.received();
        let newest = Resume { received, ..newest };
        let tried = net.on_gateway(|gateway| async move { try_to_resume(&gateway, newest) });
        assert_eq!(net.wait("an answer", SOON, &tried), Ok(()), "the newest one does");
        // Whoever it was has said nothing, so the agent's own secret is still good.
        up_again(&mut net, [5, 4], 2 * BACK);
        goes_on(&mut net, generation);
        net.finish();
    });
}

/// Asks for a session as somebody with the workspace's token would.
fn try_to_resume(gateway: &Gateway, resume: Resume) -> Result<(), Code> {
    let hello = Hello {
        versions: version::OURS,
        features: version::FEATURES.iter().map(|name| (*name).to_owned()).collect(),
        agent_version: "1".into(),
        role: Role::Workspace,
        instance: 0,
        resume: Some(resume),
        open_credit_bytes: OPEN_CREDIT_BYTES,
        ports: Vec::new(),
        default_port: None,
        join: None,
        lanes: 1,
        apps: Vec::new(),
        host: HostMode::Auto,
        relay: None,
        seal: Bytes::new(),
    };
    let (subject, lease) = (Subject::Workspace("well".parse().expect("a name")), crate::gateway_host::lease());
    let (peer, via) = (([192, 168, 0, 99], 9).into(), tunnel_link::grpc::Via::Http2);
    let candidate = Candidate { subject, owned: None, lease, peer, via, hello, generation: None, lane: None };
    let admitted = gateway.factory.provide(candidate).map_err(|refused| refused.code)?;
    // A link on which nothing comes.
    gateway.factory.serve(admitted, FrameReader::new(Empty::<Bytes>::new()));
    Ok(())
}
