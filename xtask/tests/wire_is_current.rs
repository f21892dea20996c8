//! The generated protobuf code and the descriptor set are committed, so that a build needs no generator; this test
//! makes them anew and compares. To take over a change of the schema: `UPDATE_WIRE=1 cargo test -p xtask --test wire_is_current`.

#![allow(clippy::expect_used, reason = "a failed expectation is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

use protox::prost::Message;

fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto")
}

/// A generator of code, with its options.
fn generator() -> prost_build::Config {
    let mut config = prost_build::Config::new();
    config.bytes(["."]);
    config
}

/// The package of a schema, its files, and where the code that is made of it belongs.
fn check(package: &str, files: &[&str], mut generator: prost_build::Config, code: &Path) {
    let schema = proto().join("schema");
    let descriptors = protox::compile(files, [&schema]).expect("schema compiles");

    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("wire").join(package);
    fs::create_dir_all(&out).expect("scratch folder");
    generator.out_dir(&out).compile_fds(descriptors.clone()).expect("code is generated");

    let file = format!("{package}.rs");
    let fresh = fs::read(out.join(&file)).expect("generated file");
    compare(&code.join(&file), &fresh);
    // Source positions and comments are for people; reflection needs names and types only.
    let mut lean = descriptors;
    for file in &mut lean.file {
        file.source_code_info = None;
    }
    compare(&schema.join(format!("{package}.binpb")), &lean.encode_to_vec());
}

#[test]
fn generated_wire_code_matches_the_schema() {
    let files = [
        "tunnel/v1/tunnel.proto",
        "tunnel/v1/reconcile.proto",
        "tunnel/v1/environments.proto",
        "tunnel/v1/orphans.proto",
        "tunnel/v1/git.proto",
    ];
    check("tunnel.v1", &files, generator(), &proto().join("src/wire"));
}

#[test]
fn generated_code_of_the_public_services_matches_their_schema() {
    let code = proto().join("../gateway/api/src/grpc/wire");
    let mut generator = generator();
    // The traits that the gateway implements. Its schema has no other program to call it with.
    generator.service_generator(tonic_prost_build::configure().build_client(false).service_generator());
    check("environments.v1", &["environments/v1/environments.proto"], generator, &code);
}

#[test]
fn generated_code_of_the_replicas_service_matches_its_schema() {
    let mut generator = generator();
    // Connections are made by the gateway, and not by tonic.
    generator.service_generator(tonic_prost_build::configure().build_transport(false).service_generator());
    check("peers.v1", &["peers/v1/peers.proto"], generator, &proto().join("../gateway/replicas/src/wire"));
}

fn compare(committed: &Path, fresh: &[u8]) {
    if std::env::var_os("UPDATE_WIRE").is_some() {
        fs::create_dir_all(committed.parent().expect("file has a folder")).expect("folder");
        fs::write(committed, fresh).expect("file is written");
    }
    let current = fs::read(committed).unwrap_or_default();
    assert!(
        current == fresh,
        "{} is not what the schema gives; run UPDATE_WIRE=1 cargo test -p xtask --test wire_is_current",
        committed.display()
    );
}
