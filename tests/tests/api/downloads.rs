//! Programs of the workspace agent, as jobs of CI systems download them.

use gateway_ci::downloads::Downloads;

use super::support::{As, World};

/// More than any other answer of the API may have, in bytes.
const BYTES: usize = 6 * 1024 * 1024 + 17;

#[tokio::test]
async fn program_is_sent_whole_to_whoever_asks_for_its_hash_and_nothing_else_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("workspace-agent");
    let head = [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x3e, 0];
    let program: Vec<u8> = head.into_iter().chain((0..=252).cycle().take(BYTES)).collect();
    std::fs::write(&path, &program).unwrap();
    let world = World::configured(|config| config.ci.agent_files = vec![path.clone()]).await;
    let url = Downloads::open(&[path]).unwrap().agents(&format!("http://{}", world.public())).remove(0).url;
    let target = url.strip_prefix(&format!("http://{}/api/v1", world.public())).unwrap();
    let answer = world.call("GET", target, &As::Nobody, "").await;
    assert_eq!((answer.status(), answer.body.len()), (200, program.len()));
    assert!(answer.body == program);
    assert_eq!(answer.header("content-length"), Some(program.len().to_string().as_str()));
    assert_eq!(answer.header("content-type"), Some("application/octet-stream"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    for (method, target, status) in [
        ("GET", format!("/ci/agents/{}", "0".repeat(64)), 404),
        ("GET", "/ci/agents/..%2f..%2fetc%2fpasswd".to_owned(), 404),
        ("GET", "/ci/agents/".to_owned(), 404),
        ("POST", target.to_owned(), 405),
    ] {
        let answer = world.call(method, &target, &As::Nobody, "").await;
        assert_eq!(answer.status(), status, "{method} {target}");
    }
}
