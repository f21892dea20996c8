use super::*;
use crate::Store;
use crate::each::{Fresh, each_fresh};

const NO_PATIENCE: Duration = Duration::ZERO;

async fn take(fresh: &Fresh) -> Result<SingleGateway, SingleError> {
    SingleGateway::take(&fresh.config, NO_PATIENCE).await
}

#[tokio::test]
async fn second_gateway_is_told_of_the_first_and_gets_in_when_that_has_ended() {
    each_fresh(async |fresh| {
        let first = take(fresh).await.unwrap();
        let refused = take(fresh).await.unwrap_err().to_string();
        assert!(refused.contains("one gateway per database") && refused.contains(&first.database), "{refused}");
        assert!(refused.contains("process "), "{refused}");
        // Commands of the operator are not in its way, nor it in theirs.
        fresh.open().await.close().await;
        let waiting = SingleGateway::take(&fresh.config, PATIENCE);
        let ended = async {
            tokio::task::yield_now().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(waiting, ended);
        drop(second.unwrap());
    })
    .await;
}

#[tokio::test]
async fn database_in_memory_is_anybodys_own() {
    let config = StoreConfig::at(StoreUrl::SqliteMemory);
    let first = SingleGateway::take(&config, NO_PATIENCE).await.unwrap();
    drop(SingleGateway::take(&config, NO_PATIENCE).await.unwrap());
    drop(first);
}

#[cfg(unix)]
#[tokio::test]
async fn database_with_two_names_has_one_gateway() {
    let fresh = Fresh::file();
    fresh.open().await.close().await;
    let first = take(&fresh).await.unwrap();
    let other = fresh.folder().join("other.db");
    std::os::unix::fs::symlink(fresh.folder().join("gateway.db"), &other).unwrap();
    let config = StoreConfig::at(StoreUrl::SqliteFile(other));
    assert!(matches!(SingleGateway::take(&config, NO_PATIENCE).await, Err(SingleError::Taken { .. })));
    drop(first);
}

#[tokio::test]
async fn folder_that_is_not_there_is_named_with_what_helps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("absent").join("gateway.db");
    let config = StoreConfig::at(StoreUrl::SqliteFile(path.clone()));
    let expected = format!(
        "cannot open the database {}: the folder {} does not exist: make it, or change store.url",
        path.display(),
        path.parent().unwrap().display()
    );
    assert_eq!(SingleGateway::take(&config, NO_PATIENCE).await.unwrap_err().to_string(), expected);
    assert_eq!(Store::open_with(&config).await.unwrap_err().to_string(), expected);
}

/// Ends the session that holds a gateway's lock on the server, as an outage would.
async fn end_session(fresh: &Fresh, gateway: &SingleGateway) -> i32 {
    let pid = pid_of(gateway);
    fresh.end_session(pid).await;
    pid
}

fn pid_of(gateway: &SingleGateway) -> i32 {
    let Hold::Server { session, .. } = &gateway.hold else { panic!("it is on a server") };
    session.lock().as_ref().unwrap().id.pid
}

#[tokio::test]
async fn lock_that_the_server_let_go_is_taken_again_unless_another_gateway_has_it() {
    each_fresh(async |fresh| {
        let store = fresh.open().await;
        let first = take(fresh).await.unwrap();
        assert!(first.confirm(&store.readers, false).await.unwrap().is_ok());
        if fresh.is_on_server() {
            end_session(fresh, &first).await;
            while first.confirm(&store.readers, false).await.unwrap().is_err() {}
        }
        assert!(take(fresh).await.is_err(), "it has it, or has it again");
        assert!(first.confirm(&store.readers, true).await.unwrap().is_ok());
        if fresh.is_on_server() {
            // After an outage it takes it anew, whatever became of the session that had it.
            let before = end_session(fresh, &first).await;
            assert!(first.confirm(&store.readers, true).await.unwrap().is_ok());
            assert_ne!(pid_of(&first), before);
            end_session(fresh, &first).await;
            let second = SingleGateway::take(&fresh.config, PATIENCE).await.unwrap();
            let error = first.confirm(&store.readers, true).await.unwrap().unwrap_err().to_string();
            assert!(error.contains("one gateway per database"), "{error}");
            drop(second);
        }
        store.close().await;
    })
    .await;
}
