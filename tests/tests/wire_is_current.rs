//! The generated protobuf code and the descriptor set are committed, so that a build needs no generator; this test
//! makes them anew and compares. To take over a change of the schema: `UPDATE_WIRE=1 cargo test -p e2e --test wire_is_current`.

#![allow(clippy::expect_used, reason = "a failed expectation is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

use protox::prost::Message;

fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto")
}

#[test]
fn generated_wire_code_matches_the_schema() {
    let schema = proto().join("schema");
    let descriptors =
        protox::compile(["tunnel/v1/tunnel.proto", "tunnel/v1/reconcile.proto"], [&schema]).expect("schema compiles");

    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("wire");
    fs::create_dir_all(&out).expect("scratch folder");
    prost_build::Config::new().bytes(["."]).out_dir(&out).compile_fds(descriptors.clone()).expect("code is generated");

    let code = fs::read(out.join("tunnel.v1.rs")).expect("generated file");
    compare(&proto().join("src/wire/tunnel.v1.rs"), &code);
    // Source positions and comments are for people; reflection needs names and types only.
    let mut lean = descriptors;
    for file in &mut lean.file {
        file.source_code_info = None;
    }
    compare(&proto().join("schema/tunnel.v1.binpb"), &lean.encode_to_vec());
}

fn compare(committed: &Path, fresh: &[u8]) {
    if std::env::var_os("UPDATE_WIRE").is_some() {
        fs::create_dir_all(committed.parent().expect("file has a folder")).expect("folder");
        fs::write(committed, fresh).expect("file is written");
    }
    let current = fs::read(committed).unwrap_or_default();
    assert!(
        current == fresh,
        "{} is not what the schema gives; run UPDATE_WIRE=1 cargo test -p e2e --test wire_is_current",
        committed.display()
    );
}
