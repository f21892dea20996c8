//! What is kept where, who may read it, and which gateway and token a command ends up with.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

/// A folder of its own, gone at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn env(&self, more: &[(&str, &str)]) -> BTreeMap<String, String> {
        let path = self.file().display().to_string();
        let own = (CREDENTIALS_VARIABLE.to_owned(), path);
        more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).chain([own]).collect()
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("sub/credentials.json")
    }

    fn keep(&self, gateway: &str, token: &Token) {
        let kept = StoredCredentials {
            token: token.clone(),
            token_id: "t-1".to_owned(),
            user: "ann".to_owned(),
            expires_at: None,
            ca_file: Some("ca.pem".into()),
        };
        Credentials::update(&self.file(), |credentials| credentials.keep(&url(gateway), kept)).unwrap();
    }
}

fn url(text: &str) -> PublicUrl {
    parse_gateway(text).unwrap()
}

fn token() -> Token {
    Token::generate(TokenKind::User).unwrap()
}

fn flags(gateway: Option<&str>) -> Remote {
    Remote { gateway: gateway.map(url), ..Remote::default() }
}

#[test]
fn what_is_kept_reads_back_and_only_its_user_can_read_it() {
    let folder = Folder::new();
    let token = token();
    folder.keep("https://a.example", &token);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder.file()), mode(folder.file().parent().unwrap())), (0o600, 0o700));
    let found = signed_in(&flags(None), &folder.env(&[])).unwrap();
    assert_eq!((found.gateway, found.token.reveal()), (url("https://a.example"), token.reveal()));
    assert_eq!(found.ca_file, Some("ca.pem".into()));
    let shown = format!("{:?}", Credentials::load(&folder.file()).unwrap());
    assert!(!shown.contains(&token.reveal()[..20]), "{shown}");
}

#[test]
fn file_that_others_can_read_is_refused() {
    let folder = Folder::new();
    folder.keep("https://a.example", &token());
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o640)).unwrap();
    let refused = signed_in(&flags(None), &folder.env(&[])).unwrap_err();
    assert!(matches!(refused, CredentialsError::NotPrivate(_)), "{refused}");
}

#[test]
fn flag_wins_over_variable_and_variable_over_the_one_used_last() {
    let folder = Folder::new();
    for gateway in ["https://a.example", "https://b.example", "https://c.example"] {
        folder.keep(gateway, &token());
    }
    let gateway = |flag, env: &BTreeMap<_, _>| signed_in(&flags(flag), env).unwrap().gateway;
    assert_eq!(gateway(None, &folder.env(&[])), url("https://c.example"));
    let env = folder.env(&[(GATEWAY_VARIABLE, "https://b.example")]);
    assert_eq!(gateway(None, &env), url("https://b.example"));
    assert_eq!(gateway(None, &folder.env(&[])), url("https://c.example"), "a variable is not remembered");
    assert_eq!(gateway(Some("https://a.example"), &env), url("https://a.example"));
    assert_eq!(gateway(None, &folder.env(&[])), url("https://a.example"), "a flag is");
    let refused = signed_in(&flags(Some("https://d.example")), &env).unwrap_err();
    assert!(matches!(refused, CredentialsError::NotSignedIn(_)), "{refused}");
    let refused = signed_in(&flags(None), &folder.env(&[(GATEWAY_VARIABLE, "nonsense")])).unwrap_err();
    assert!(matches!(refused, CredentialsError::BadGateway(_)), "{refused}");
}

#[test]
fn token_file_wins_over_what_is_kept_and_must_be_a_users() {
    let folder = Folder::new();
    folder.keep("https://a.example", &token());
    let (other, path) = (token(), folder.0.path().join("token"));
    fs::write(&path, format!("{}\n", other.reveal())).unwrap();
    let file = path.display().to_string();
    let found = signed_in(&flags(None), &folder.env(&[(TOKEN_FILE_VARIABLE, &file)])).unwrap();
    assert_eq!(found.token.reveal(), other.reveal());
    fs::write(&path, Token::generate(TokenKind::Agent).unwrap().reveal()).unwrap();
    let by_flag = Remote { token_file: Some(path.clone()), ..flags(None) };
    let refused = signed_in(&by_flag, &folder.env(&[])).unwrap_err();
    assert!(matches!(refused, CredentialsError::AgentToken(_)), "{refused}");
    fs::write(&path, "gwu_secret").unwrap();
    let refused = signed_in(&by_flag, &folder.env(&[])).unwrap_err().to_string();
    assert!(!refused.contains("gwu_secret"), "{refused}");
}

#[test]
fn forgotten_gateway_is_signed_in_no_more() {
    let folder = Folder::new();
    folder.keep("https://a.example", &token());
    let gone = Credentials::update(&folder.file(), |credentials| credentials.forget(&url("https://a.example")));
    assert!(gone.unwrap().is_some());
    let refused = signed_in(&flags(None), &folder.env(&[])).unwrap_err();
    assert!(matches!(refused, CredentialsError::NoGateway), "{refused}");
}

#[test]
fn damaged_file_is_named_and_none_at_all_is_empty() {
    let folder = Folder::new();
    let refused = signed_in(&flags(None), &folder.env(&[])).unwrap_err();
    assert!(matches!(refused, CredentialsError::NoGateway), "{refused}");
    fs::create_dir_all(folder.file().parent().unwrap()).unwrap();
    for text in ["", "{}", r#"{"version":2,"last_used":null,"gateways":{}}"#, "[1"] {
        fs::write(folder.file(), text).unwrap();
        fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o600)).unwrap();
        let refused = signed_in(&flags(None), &folder.env(&[])).unwrap_err();
        assert!(matches!(refused, CredentialsError::BadFile(_)), "{text}: {refused}");
    }
}

#[test]
fn programs_that_change_the_file_at_once_wait_for_each_other() {
    let folder = Folder::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let folder = &folder;
            scope.spawn(move || folder.keep(&format!("https://g{number}.example"), &token()));
        }
    });
    let credentials = Credentials::load(&folder.file()).unwrap();
    assert_eq!(credentials.gateways.len(), 8);
}
