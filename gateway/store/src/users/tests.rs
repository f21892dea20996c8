use super::super::each::{each, warm};
use super::*;

const ISSUER: &str = "https://id.example";

fn at(seconds: i64) -> UnixSeconds {
    UnixSeconds::new(seconds)
}

fn user(name: &str) -> UserName {
    name.parse().unwrap()
}

fn groups(names: &[&str]) -> Vec<GroupName> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

impl Store {
    async fn come(&self, subject: &str, wanted: &str, now: i64) -> Admission {
        self.admit(ISSUER, subject, &user(wanted), &groups(&["devs"]), at(now)).await.unwrap()
    }
}

#[tokio::test]
async fn name_sticks_to_the_subject_and_is_nobody_elses() {
    each(async |store| {
        assert_eq!(store.come("u-1", "ann", 1).await, Admission::As(user("ann")));
        assert_eq!(store.come("u-1", "root", 2).await, Admission::As(user("ann")), "a changed claim does not rename");
        assert_eq!(store.come("u-2", "ann", 3).await, Admission::NameTaken);
        let elsewhere = store.admit("https://other.example", "u-1", &user("ann"), &[], at(4)).await.unwrap();
        assert_eq!(elsewhere, Admission::NameTaken, "the same subject of another issuer is somebody else");
        assert_eq!(store.come("u-2", "root", 5).await, Admission::As(user("root")), "which nobody has");
        let known = store.users().await.unwrap();
        let seen: Vec<_> = known.iter().map(|user| (user.name.as_str(), user.created_at, user.last_seen)).collect();
        assert_eq!(seen, [("ann", at(1), Some(at(2))), ("root", at(5), Some(at(5)))]);
        assert_eq!(known[0].subject, Some((ISSUER.to_owned(), "u-1".to_owned())));
    })
    .await;
}

#[tokio::test]
async fn groups_are_those_of_the_last_sign_in() {
    each(async |store| {
        assert_eq!(store.user_status(&user("ann")).await.unwrap(), UserStatus::default());
        store.come("u-1", "ann", 1).await;
        let status = store.user_status(&user("ann")).await.unwrap();
        assert_eq!((&*status.groups, status.signed_in_at), (&*groups(&["devs"]), Some(at(1))));
        store.admit(ISSUER, "u-1", &user("ann"), &groups(&["ops"]), at(9)).await.unwrap();
        let status = store.user_status(&user("ann")).await.unwrap();
        assert_eq!((&*status.groups, status.signed_in_at), (&*groups(&["ops"]), Some(at(9))));
        store.forget_groups(ISSUER, "u-1").await.unwrap();
        assert_eq!(store.user_status(&user("ann")).await.unwrap().groups.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn disabled_user_does_not_come_in_until_they_are_enabled() {
    each(async |store| {
        store.come("u-1", "ann", 1).await;
        assert!(store.disable_user(&user("ann"), at(5)).await.unwrap());
        assert!(store.disable_user(&user("ann"), at(6)).await.unwrap());
        assert_eq!(store.users().await.unwrap()[0].disabled_at, Some(at(5)), "the first time stays");
        assert!(store.user_status(&user("ann")).await.unwrap().is_disabled);
        assert_eq!(store.come("u-1", "ann", 7).await, Admission::Disabled);
        assert_eq!(store.come("u-1", "other-name", 7).await, Admission::Disabled);
        assert_eq!(store.come("u-2", "ann", 7).await, Admission::NameTaken);
        assert_eq!(store.users().await.unwrap()[0].last_seen, Some(at(1)));
        assert!(store.enable_user(&user("ann")).await.unwrap());
        assert_eq!(store.come("u-1", "ann", 8).await, Admission::As(user("ann")));
    })
    .await;
}

#[tokio::test]
async fn user_who_only_has_a_token_or_a_workspace_can_be_disabled_and_an_unknown_one_cannot() {
    each(async |store| {
        assert!(!store.disable_user(&user("alcie"), at(1)).await.unwrap(), "a slip makes no user");
        assert!(!store.enable_user(&user("alcie")).await.unwrap());
        assert_eq!(store.users().await.unwrap(), []);
        store.create_user_token(&user("bot"), at(1)).await.unwrap();
        store.create_agent_token(&"app".parse().unwrap(), &user("owner"), at(1)).await.unwrap();
        for name in ["bot", "owner"] {
            assert!(store.disable_user(&user(name), at(2)).await.unwrap());
            assert!(store.user_status(&user(name)).await.unwrap().is_disabled);
        }
        assert_eq!(store.come("u-1", "bot", 3).await, Admission::Disabled);
        store.enable_user(&user("bot")).await.unwrap();
        assert_eq!(store.come("u-1", "bot", 4).await, Admission::As(user("bot")));
        assert_eq!(store.come("u-2", "bot", 5).await, Admission::NameTaken);
    })
    .await;
}

#[tokio::test]
async fn of_two_who_come_at_once_under_one_name_one_gets_it() {
    each(async |store| {
        warm(store).await;
        // Who wins the race is chance, so there are several.
        for round in 0..10 {
            let (ann, devs) = (user(&format!("ann-{round}")), groups(&[]));
            let (first, second) = (format!("u-{round}-1"), format!("u-{round}-2"));
            let (one, other) = tokio::join!(
                store.admit(ISSUER, &first, &ann, &devs, at(1)),
                store.admit(ISSUER, &second, &ann, &devs, at(1))
            );
            let both = [one.unwrap(), other.unwrap()];
            assert!(both.contains(&Admission::As(ann)) && both.contains(&Admission::NameTaken), "{both:?}");
        }
    })
    .await;
}
