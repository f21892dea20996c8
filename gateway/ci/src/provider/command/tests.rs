use super::*;
use gateway_store::{SecretText, VariableKind};
use gateway_types::token::TokenKind;

#[test]
fn values_are_in_files_in_base64_and_the_token_as_it_is() {
    let token = Token::generate(TokenKind::Agent).unwrap();
    let value = SecretText::new("\"}\n: $HOME".to_owned());
    let one = Variable { kind: VariableKind::File, name: "../x".to_owned(), value };
    let expected = [("WORKSPACE_AGENT_TOKEN_FILE", token.reveal()), ("GW_VAR_1", "In0KOiAkSE9NRQ==")];
    assert_eq!(secrets(Some(&token), &[one]), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(secrets(None, &[]), []);
}

#[test]
fn program_is_found_on_the_path_or_by_an_absolute_path_only() {
    let no_program = tempfile::NamedTempFile::new().unwrap();
    let path = std::ffi::OsStr::new("relative:/nonexistent:/bin:/usr/bin");
    assert!(find_program("sh", Some(path)).unwrap().ends_with("bin/sh"));
    assert_eq!(find_program("/bin/sh", None).unwrap(), PathBuf::from("/bin/sh"));
    for (name, why) in [
        ("sh", "on the PATH"),
        ("./sh", "neither absolute"),
        ("/bin/no-such-program", "no such program"),
        (no_program.path().to_str().unwrap(), "no such program"),
        ("/bin", "no such program"),
    ] {
        let path = (name != "sh").then_some(path);
        assert!(find_program(name, path).unwrap_err().to_string().contains(why), "{name}");
    }
}

#[test]
fn name_of_a_run_is_two_keys_and_no_path() {
    let directory = tempfile::tempdir().unwrap();
    let settings = CommandSettings {
        program: vec!["sh".to_owned()],
        directory: directory.path().to_owned(),
        environment: Vec::new(),
        stop_grace: Duration::from_secs(1),
        supervisor: None,
    };
    let command = CommandProvider::new(settings.clone()).unwrap();
    let key = "0123456789abcdef0123456789abcdef";
    assert!(command.inner.of(&RunRef { id: format!("{key}/{key}"), child: None }).is_ok());
    for id in ["", "/", key, &format!("../{key}"), &format!("{key}/../{key}"), &format!("{key}/{key}/")] {
        let run = RunRef { id: id.to_owned(), child: None };
        assert_eq!(command.inner.of(&run).err(), Some(ProviderError::NotOurs), "{id}");
    }
    let error = CommandProvider::new(CommandSettings { program: Vec::new(), ..settings }).unwrap_err();
    assert!(error.to_string().contains("none is named"), "{error}");
}
