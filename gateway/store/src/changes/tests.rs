use super::*;
use crate::each::each;
use gateway_types::{Audience, Port, Share, UnixSeconds};

const NOW: UnixSeconds = UnixSeconds::new(1000);

fn change(id: i64) -> (i64, AccessChange) {
    (id, AccessChange::User(format!("user-{id}").parse().unwrap()))
}

fn named(id: i64) -> AccessChange {
    change(id).1
}

#[test]
fn change_is_told_once_and_one_that_is_seen_late_is_not_missed() {
    let mut feed = Feed { floor: Some(0), ..Feed::default() };
    assert_eq!(feed.take(vec![change(1), change(3)], true), [named(1), named(3)]);
    // The second got its number before the third, and was seen after it.
    assert_eq!(feed.take(vec![change(1), change(2), change(3)], true), [named(2)]);
    assert_eq!(feed.take(vec![change(1), change(2), change(3)], true), []);
    assert_eq!(feed.take(vec![change(OVERLAP + 10)], true), [named(OVERLAP + 10)]);
    assert_eq!(feed.floor, Some(10), "what is that old is not asked for any more");
    assert!(feed.seen.len() == 1, "nor remembered");
}

#[test]
fn more_than_can_be_read_at_once_may_be_anything_and_the_rest_is_read_next() {
    let mut feed = Feed { floor: Some(0), ..Feed::default() };
    assert_eq!(feed.take(vec![change(1), change(2)], false), [AccessChange::Everything]);
    assert_eq!(feed.floor, Some(2));
    assert_eq!(feed.take(vec![change(3)], true), [named(3)]);
}

#[tokio::test]
async fn database_tells_of_everything_that_takes_access_away_or_gives_it() {
    each(async |store| {
        let (ann, app, bob) = ("ann".parse().unwrap(), "app".parse().unwrap(), "bob".parse().unwrap());
        let agent = store.create_agent_token(&app, &ann, NOW).await.unwrap();
        let own = store.create_user_token(&ann, NOW).await.unwrap();
        let mut feed = Feed::default();
        drop(store.news(&mut feed).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), [], "nothing happened");

        assert!(store.revoke_token(own.id, NOW).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), [AccessChange::Token(own.token.hash())]);
        assert!(store.revoke_token(own.id, NOW).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), [], "it was revoked before");
        assert!(store.revoke_token(agent.id, NOW).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), [AccessChange::Token(agent.token.hash())]);

        let of_ann = [AccessChange::User(ann.clone())];
        assert!(store.disable_user(&ann, NOW).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), of_ann);
        assert!(store.enable_user(&ann).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), of_ann);

        let of_app = AccessChange::Workspace(app.clone());
        let share = Share { port: Port::new(80).unwrap(), audience: Audience::User(bob), expires_at: None };
        assert!(store.share(&app, &share, &ann, NOW).await.unwrap());
        assert!(store.news(&mut feed).await.unwrap().contains(&of_app));
        let longer = Share { expires_at: Some(NOW.later(std::time::Duration::from_secs(60))), ..share.clone() };
        assert!(store.share(&app, &longer, &ann, NOW).await.unwrap());
        assert!(store.news(&mut feed).await.unwrap().contains(&of_app), "it ends now");
        assert!(store.unshare(&app, share.port, &share.audience).await.unwrap());
        assert_eq!(store.news(&mut feed).await.unwrap(), std::slice::from_ref(&of_app));

        assert!(store.delete_external(&app, Some(&ann), NOW).await.unwrap());
        let told = store.news(&mut feed).await.unwrap();
        assert!(told.contains(&AccessChange::Token(agent.token.hash())) && told.contains(&of_app), "{told:?}");
    })
    .await;
}

#[tokio::test]
async fn asking_whether_it_can_be_written_leaves_nothing() {
    each(async |store| {
        let mut feed = Feed::default();
        drop(store.news(&mut feed).await.unwrap());
        store.try_to_write().await.unwrap();
        assert_eq!(store.news(&mut feed).await.unwrap(), []);
    })
    .await;
}
