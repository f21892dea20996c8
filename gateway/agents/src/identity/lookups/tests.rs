use super::*;

const NOW: UnixSeconds = UnixSeconds::new(1_000);

fn away(store: &Store) {
    store.availability().watched();
    store.availability().failed(Instant::now());
}

#[tokio::test]
async fn what_was_asked_before_counts_while_the_store_is_away_and_nothing_else() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let (app, other, ann) = ("app".parse().unwrap(), "other".parse().unwrap(), "ann".parse().unwrap());
    let known = store.create_agent_token(&app, &ann, NOW).await.unwrap().token.hash();
    let unknown = store.create_agent_token(&other, &ann, NOW).await.unwrap().token.hash();
    let lookups = Lookups::new(store.clone());
    let before = lookups.token(&known).await.unwrap();
    assert!(before.is_some() && lookups.workspace(&app).await.unwrap().is_some());
    assert_eq!(lookups.running(&app).await, Ok(ExpectedRun::Unmanaged));
    away(&store);
    assert_eq!(lookups.token(&known).await, Ok(before));
    assert!(lookups.workspace(&app).await.unwrap().is_some());
    assert_eq!(lookups.running(&app).await, Ok(ExpectedRun::Unmanaged));
    assert_eq!(lookups.token(&unknown).await, Err(CredentialRefusal::Unavailable("the store")));
    assert_eq!(lookups.workspace(&other).await, Err(CredentialRefusal::Unavailable("the store")));
    assert!(lookups.forget(&AccessChange::Token(known)) && !lookups.forget(&AccessChange::Token(unknown)));
    lookups.refresh().await;
    assert_eq!(lookups.token(&known).await, Err(CredentialRefusal::Unavailable("the store")), "it was changed before");
    assert!(lookups.forget(&AccessChange::Workspace(app.clone())));
    assert!(lookups.workspace(&app).await.is_err() && lookups.running(&app).await.is_err());
    store.availability().answered(Instant::now());
    lookups.refresh().await;
    away(&store);
    assert!(lookups.workspace(&app).await.is_ok() && lookups.running(&app).await.is_ok(), "it was asked again");
    store.availability().answered(Instant::now());
    assert!(lookups.token(&unknown).await.unwrap().is_some(), "it is asked again");
}

#[tokio::test]
async fn process_that_used_its_token_comes_back_with_it_and_no_other_does() {
    let store = Store::open("sqlite::memory:").await.unwrap();
    let lookups = Lookups::new(store.clone());
    let (app, ann) = ("app".parse().unwrap(), "ann".parse().unwrap());
    let token = TokenUse {
        issuer: "https://ci.example",
        use_id: "job 1",
        token_hash: &[1; 32],
        process_hash: &[2; 32],
        workspace: &app,
        owner: &ann,
        create: true,
        until: UnixSeconds::new(2_000),
        expires_at: UnixSeconds::new(1_500),
    };
    assert_eq!(lookups.spend(&token, NOW).await, Ok(TokenUseOutcome::First));
    away(&store);
    assert_eq!(lookups.spend(&token, NOW).await, Ok(TokenUseOutcome::Again(token.until)));
    let of_another = TokenUse { process_hash: &[3; 32], ..token };
    assert_eq!(lookups.spend(&of_another, NOW).await, Err(CredentialRefusal::Unavailable("the store")));
}

#[test]
fn answer_that_was_under_way_when_something_was_changed_is_not_kept() {
    let remembered: Remembered<u8, u8> = Remembered::default();
    let before = remembered.generation();
    assert_eq!(remembered.forget(|key, _| *key == 1).len(), 0);
    remembered.keep(1, Some(7), before);
    assert_eq!(remembered.recall(&1), None);
    remembered.keep(1, Some(8), remembered.generation());
    assert_eq!(remembered.recall(&1), Some(8));
    remembered.keep(1, None, remembered.generation());
    assert_eq!(remembered.recall(&1), None, "there is none any more");
}

#[test]
fn memory_is_bounded_and_the_oldest_go_first() {
    let remembered: Remembered<usize, ()> = Remembered::default();
    for key in 0..=ENTRIES_MAX {
        remembered.keep(key, Some(()), 0);
    }
    assert!(remembered.state.lock().entries.len() < ENTRIES_MAX);
    assert!(remembered.recall(&0).is_none() && remembered.recall(&ENTRIES_MAX).is_some());
}
