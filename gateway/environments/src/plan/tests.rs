use tunnel_proto::environments::ObjectError;
use tunnel_proto::reconcile::Blocker;

use super::*;

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn object(name: &str) -> ObjectRef {
    ObjectRef {
        version: "v1".into(),
        kind: "ServiceAccount".into(),
        namespace: "n".into(),
        name: name.into(),
        ..Default::default()
    }
}

fn objects(names: &[&str]) -> Vec<ObjectRef> {
    names.iter().map(|name| object(name)).collect()
}

fn there_now(names: &[&str]) -> Vec<tunnel_proto::environments::ObjectRef> {
    let wire = |name: &&str| tunnel_proto::environments::ObjectRef {
        uid: format!("uid-{name}"),
        ..super::super::record::to_wire(&object(name))
    };
    names.iter().map(wire).collect()
}

fn error(name: &str, code: ObjectErrorCode) -> ObjectError {
    ObjectError { object: there_now(&[name]).pop(), code, message: format!("{name} failed") }
}

fn names(objects: &[ObjectRef]) -> Vec<&str> {
    objects.iter().map(|object| object.name.as_str()).collect()
}

fn state(tries: &Tries) -> PlanState<'_> {
    PlanState { is_removal_due: false, is_tracking: true, give_up_at: Some(at(600)), tries, is_agent_new: false }
}

#[test]
fn removal_goes_before_what_is_prepared_and_nothing_due_is_rest() {
    let tries = Tries::default();
    let both = PlanState { is_removal_due: true, ..state(&tries) };
    assert_eq!(next(&both, at(1)), EnvironmentStep::Remove);
    assert_eq!(next(&PlanState { is_tracking: false, ..both.clone() }, at(1)), EnvironmentStep::Forget);
    assert_eq!(
        next(&both, at(600)),
        EnvironmentStep::GiveUp(RefusalCode::EnvironmentBusy),
        "the job does not wait for ever"
    );
    assert_eq!(next(&PlanState { give_up_at: None, ..both }, at(9_999)), EnvironmentStep::Remove, "the removal does");
    assert_eq!(next(&state(&tries), at(1)), EnvironmentStep::Apply);
    assert_eq!(next(&PlanState { give_up_at: None, ..state(&tries) }, at(1)), EnvironmentStep::Rest);
}

#[test]
fn pause_is_kept_unless_an_agent_came_and_never_beyond_the_end_of_a_job() {
    let failure = Some(("agent_absent".to_owned(), "x".to_owned()));
    let tries = Tries { failures: 3, failure, retry_at: Some(at(610)) };
    assert_eq!(next(&state(&tries), at(590)), EnvironmentStep::Wait(at(600)));
    assert_eq!(next(&PlanState { is_agent_new: true, ..state(&tries) }, at(590)), EnvironmentStep::Apply);
    assert_eq!(next(&state(&tries), at(600)), EnvironmentStep::GiveUp(RefusalCode::AgentAbsent));
    let removal = PlanState { is_removal_due: true, give_up_at: None, ..state(&tries) };
    assert_eq!(next(&removal, at(10)), EnvironmentStep::Wait(at(610)));
    assert_eq!(next(&removal, at(610)), EnvironmentStep::Remove);
}

#[test]
fn pause_that_is_longer_than_any_is_over_for_a_clock_stepped_back() {
    let tries = Tries { failures: 3, failure: None, retry_at: Some(at(100)) };
    assert_eq!(next(&state(&tries), at(70)), EnvironmentStep::Wait(at(100)));
    assert_eq!(next(&state(&tries), at(69)), EnvironmentStep::Apply);
    let removal = PlanState { is_removal_due: true, give_up_at: None, ..state(&tries) };
    assert_eq!(next(&removal, at(-500)), EnvironmentStep::Wait(at(100)));
    assert_eq!(next(&removal, at(-501)), EnvironmentStep::Remove);
}

#[test]
fn agent_that_has_too_much_to_do_has_not_failed_and_is_asked_again_soon() {
    let tries = Tries { failures: 7, failure: None, retry_at: None };
    let overloaded = Err(CallError::Overloaded);
    let Applied::Again(again) = applied(&[], &[], &overloaded, &tries, at(0)) else { panic!() };
    assert_eq!((again.failures, again.retry_at), (7, Some(at(2))));
    let Removed::Left(_, left) = removed(&objects(&["a"]), &overloaded, &tries, at(0)) else { panic!() };
    assert_eq!((left.failures, left.retry_at), (7, Some(at(2))));
    assert_eq!(left.failure.unwrap().0, "overloaded", "who asks hears why");
}

#[test]
fn pauses_double_up_to_a_bound_and_are_longer_for_removals() {
    let (mut preparing, mut removing) = (Tries::default(), Tries::default());
    let mut pauses = Vec::new();
    for _ in 0..40 {
        let Applied::Again(tries) = applied(&[], &[], &Err(CallError::Absent), &preparing, at(0)) else { panic!() };
        let Removed::Left(_, left) = removed(&objects(&["a"]), &Err(CallError::Absent), &removing, at(0)) else {
            panic!()
        };
        pauses.push((tries.retry_at.unwrap().get(), left.retry_at.unwrap().get()));
        (preparing, removing) = (tries, left);
    }
    assert_eq!(pauses[..6], [(1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (30, 32)]);
    assert_eq!(pauses[39], (30, 600));
    assert_eq!(preparing.failure, Some(("agent_absent".to_owned(), CallError::Absent.to_string())));
}

#[test]
fn what_may_be_there_is_what_was_recorded_and_what_is_wanted_once_each() {
    let mut known = object("a");
    (known.uid, known.version) = ("u".to_owned(), "v1beta1".to_owned());
    let all = union(&[known.clone(), object("old")], &objects(&["a", "new"]));
    assert_eq!(names(&all), ["a", "new", "old"]);
    assert_eq!(all[0].uid, "u");
}

#[test]
fn apply_without_error_records_what_is_there_and_nothing_that_was_not_asked_for() {
    let (wanted, may_be) = (objects(&["a", "b"]), objects(&["a", "b", "old"]));
    let done = Done { objects: there_now(&["a", "b", "strange"]), ..Done::default() };
    let Applied::Completed(there) = applied(&wanted, &may_be, &Ok(done.clone()), &Tries::default(), at(0)) else {
        panic!()
    };
    assert_eq!(names(&there), ["a", "b"]);
    assert_eq!(there[0].uid, "uid-a");
    // What is on its way out is there, and recorded until it is gone; what went before is not.
    let left = vec![Blocker { object: "ServiceAccount old".to_owned(), ..Blocker::default() }];
    let done = Done { left, objects: there_now(&["a", "b", "old", "strange"]), ..done };
    let may_be = [may_be, objects(&["older"])].concat();
    let Applied::Completed(there) = applied(&wanted, &may_be, &Ok(done), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(names(&there), ["a", "b", "old"]);
}

#[test]
fn apply_whose_answer_says_of_a_wanted_object_neither_that_it_is_there_nor_why_not_is_no_answer() {
    let (wanted, may_be) = (objects(&["a", "b"]), objects(&["a", "b", "old"]));
    for there in [&[][..], &["a"], &["b", "old", "strange"]] {
        let done = Done { objects: there_now(there), ..Done::default() };
        let Applied::Again(tries) = applied(&wanted, &may_be, &Ok(done), &Tries::default(), at(0)) else { panic!() };
        assert_eq!((tries.failures, tries.failure.unwrap().0.as_str()), (1, "call_timeout"), "{there:?}");
    }
}

#[test]
fn apply_is_not_failed_by_what_an_earlier_template_had_and_is_not_ours_any_more() {
    let (wanted, may_be) = (objects(&["a"]), objects(&["a", "old"]));
    let errors = vec![error("old", ObjectErrorCode::NotOwned)];
    let done = Done { objects: there_now(&["a"]), errors, left: Vec::new() };
    let Applied::Completed(there) = applied(&wanted, &may_be, &Ok(done), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(names(&there), ["a"]);
}

#[test]
fn apply_with_errors_fails_for_good_unless_all_are_of_the_moment() {
    let may_be = objects(&["a", "b", "c"]);
    let answer = |errors| Ok(Done { objects: there_now(&["a", "c"]), errors, left: Vec::new() });
    let moment = vec![error("b", ObjectErrorCode::Unavailable), error("c", ObjectErrorCode::Superseded)];
    assert!(matches!(applied(&may_be, &may_be, &answer(moment.clone()), &Tries::default(), at(0)), Applied::Again(_)));
    let mut mixed = moment;
    mixed.push(error("b", ObjectErrorCode::Forbidden));
    let Applied::Failed(left) = applied(&may_be, &may_be, &answer(mixed), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(names(&left), ["a", "b", "c"], "what failed may be there all the same");
    let strange = vec![error("b", ObjectErrorCode::NotOwned)];
    let Applied::Failed(left) = applied(&may_be, &may_be, &answer(strange), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(names(&left), ["a", "c"], "somebody else's is not ours to remove");
}

#[test]
fn record_of_a_job_that_failed_is_what_the_agent_says_if_it_looked_and_everything_if_it_broke_off() {
    let may_be = objects(&["a", "b", "of-an-earlier-job"]);
    let failed = |errors| {
        let answer = Ok(Done { objects: there_now(&["a"]), errors, left: Vec::new() });
        let Applied::Failed(left) = applied(&may_be[..2], &may_be, &answer, &Tries::default(), at(0)) else { panic!() };
        left.into_iter().map(|object| object.name).collect::<Vec<_>>()
    };
    let forbidden = error("b", ObjectErrorCode::Forbidden);
    assert_eq!(failed(vec![forbidden.clone()]), ["a"], "what was refused and what is gone would add up to too many");
    for code in [ObjectErrorCode::Unavailable, ObjectErrorCode::Superseded, ObjectErrorCode::Identity] {
        let broke_off = failed(vec![forbidden.clone(), error("a", code)]);
        assert_eq!(broke_off, ["a", "b", "of-an-earlier-job"], "{code:?}");
    }
    let whole = ObjectError { object: None, ..forbidden };
    assert_eq!(failed(vec![whole]).len(), 3, "the inventory could not be used, say");
}

#[test]
fn removal_ends_when_nothing_is_left_and_what_is_not_known_to_be_gone_stays_recorded() {
    let recorded = objects(&["a", "b"]);
    let gone = Done::default();
    assert_eq!(removed(&recorded, &Ok(gone.clone()), &Tries::default(), at(0)), Removed::Gone(Vec::new()));
    let nowhere = Done { errors: vec![error("a", ObjectErrorCode::NamespaceMissing)], ..gone.clone() };
    assert_eq!(removed(&recorded, &Ok(nowhere), &Tries::default(), at(0)), Removed::Gone(Vec::new()));
    let forbidden = Done { errors: vec![error("a", ObjectErrorCode::Forbidden)], ..gone.clone() };
    let Removed::Left(left, tries) = removed(&recorded, &Ok(forbidden), &Tries::default(), at(0)) else { panic!() };
    assert_eq!((names(&left), tries.failures), (vec!["a", "b"], 1));
    let blocked = Done {
        objects: there_now(&["b"]),
        left: vec![Blocker { object: "ServiceAccount b".to_owned(), ..Blocker::default() }],
        ..gone.clone()
    };
    let Removed::Left(_, tries) = removed(&recorded, &Ok(blocked), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(tries.failure.unwrap().1, "ServiceAccount b is still there");
    let there = Done { objects: there_now(&["b", "strange"]), ..gone };
    let Removed::Left(left, _) = removed(&recorded, &Ok(there), &Tries::default(), at(0)) else { panic!() };
    assert_eq!(names(&left), ["b"]);
}

#[test]
fn removal_tells_what_it_let_go_at_its_end_and_not_before() {
    let recorded = objects(&["a", "b"]);
    let kept = vec![error("a", ObjectErrorCode::NotOwned)];
    let answer = |there: &[&str], left| Ok(Done { objects: there_now(there), errors: kept.clone(), left });
    let blocked = vec![Blocker { object: "ServiceAccount b".to_owned(), ..Blocker::default() }];
    for still in [answer(&["b"], Vec::new()), answer(&["b"], blocked.clone()), answer(&[], blocked)] {
        let Removed::Left(left, _) = removed(&recorded, &still, &Tries::default(), at(0)) else { panic!() };
        assert_eq!(names(&left), ["a", "b"], "what is let go is asked about until the end");
    }
    let end = removed(&recorded, &answer(&[], Vec::new()), &Tries::default(), at(0));
    assert_eq!(end, Removed::Gone(kept.clone()));
    // Something that is about no object in particular is never read as one that was let go.
    let whole = ObjectError { object: None, ..kept[0].clone() };
    let Removed::Left(left, _) =
        removed(&recorded, &Ok(Done { errors: vec![whole], ..Done::default() }), &Tries::default(), at(0))
    else {
        panic!()
    };
    assert_eq!(names(&left), ["a", "b"]);
}
