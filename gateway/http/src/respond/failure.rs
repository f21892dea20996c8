//! The table of failures itself: code, status, and the fixed words that people read.

use http::StatusCode;

use gateway_types::Limit;
use gateway_types::failed_request::Side;

/// Reason the gateway itself answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No such workspace, or not the user's: the same answer.
    NoSuchHost,
    /// The address has no port, and the agent names none for it (a kind of `no_such_host`).
    NoDefaultPort,
    /// The gateway itself has nothing at this path (a kind of `no_such_host`).
    NoSuchPage,
    /// No user is signed in. A page visit is redirected instead, with 302 and the same code.
    SignInRequired,
    /// The workspace does not expose this port to the user.
    PortNotAllowed,
    /// The workspace is not running.
    WorkspaceStopped,
    /// No session for this workspace now.
    AgentAbsent,
    /// Another replica has the session, and no lane to the agent came up (a kind of `agent_absent`).
    AgentUnreachable,
    /// The agent is there, nothing listens on the port.
    PortClosed,
    /// Something listens, and closed the connection without a proper answer (a kind of `port_closed`).
    AppClosed,
    /// The agent offers SSH, and its server does not start (a kind of `port_closed`).
    SshNotStarted,
    /// Something listens, and its answer is no HTTP, or could be read in two ways (a kind of `port_closed`).
    AppAnswerInvalid,
    /// Something listens, and speaks no TLS although it was said to (a kind of `port_closed`).
    AppSpeaksNoTls,
    /// Something listens, and answers a request in the clear with TLS (a kind of `port_closed`).
    AppSpeaksTls,
    /// The app speaks TLS, and the workspace's agent is too old to (a kind of `port_closed`).
    AgentWithoutTls,
    /// The channel was not opened in time.
    OpenTimeout,
    /// The app did not begin its answer in time.
    ResponseTimeout,
    /// The session ended while the request was under way.
    SessionLost,
    /// A limit is reached.
    Overloaded {
        /// The name of the limit.
        limit: &'static str,
    },
    /// This replica is shutting down.
    Draining,
    /// The request is malformed or ambiguous.
    BadRequest {
        /// The name of the rule it breaks.
        reason: &'static str,
    },
    /// The method is not for this listener (a kind of `bad_request`).
    MethodNotAllowed,
    /// `Expect` asks for something unknown (a kind of `bad_request`).
    ExpectationFailed,
    /// The request's body stopped coming (a kind of `bad_request`).
    BodyTimeout,
    /// The request target is too long (a kind of `bad_request`).
    UriTooLong,
    /// The header section is too large, or has too many fields.
    HeaderTooLarge,
    /// Cookies are most of a header section that is too large (a kind of `header_too_large`).
    CookiesTooLarge,
    /// The connection was made for another host.
    Misdirected,
}

/// The words of one failure: what people read, apart from what is logged.
struct Words {
    title: &'static str,
    text: &'static str,
    hint: &'static str,
}

impl Failure {
    /// Every failure that has no parameter. The others are `overloaded`, one for each limit, and `bad_request`, one for each rule.
    pub const CASES: [Self; 26] = [
        Self::NoSuchHost,
        Self::NoDefaultPort,
        Self::NoSuchPage,
        Self::SignInRequired,
        Self::PortNotAllowed,
        Self::WorkspaceStopped,
        Self::AgentAbsent,
        Self::AgentUnreachable,
        Self::PortClosed,
        Self::AppClosed,
        Self::SshNotStarted,
        Self::AppAnswerInvalid,
        Self::AppSpeaksNoTls,
        Self::AppSpeaksTls,
        Self::AgentWithoutTls,
        Self::OpenTimeout,
        Self::ResponseTimeout,
        Self::SessionLost,
        Self::Draining,
        Self::MethodNotAllowed,
        Self::ExpectationFailed,
        Self::BodyTimeout,
        Self::UriTooLong,
        Self::HeaderTooLarge,
        Self::CookiesTooLarge,
        Self::Misdirected,
    ];

    /// Every code.
    pub const CODES: [&str; 14] = [
        "agent_absent",
        "bad_request",
        "draining",
        "header_too_large",
        "misdirected",
        "no_such_host",
        "open_timeout",
        "overloaded",
        "port_closed",
        "port_not_allowed",
        "response_timeout",
        "session_lost",
        "sign_in_required",
        "workspace_stopped",
    ];

    /// Returns the code, which is part of the contract with programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoSuchHost | Self::NoSuchPage | Self::NoDefaultPort => "no_such_host",
            Self::SignInRequired => "sign_in_required",
            Self::PortNotAllowed => "port_not_allowed",
            Self::WorkspaceStopped => "workspace_stopped",
            Self::AgentAbsent | Self::AgentUnreachable => "agent_absent",
            Self::PortClosed
            | Self::AppClosed
            | Self::SshNotStarted
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::AgentWithoutTls => "port_closed",
            Self::OpenTimeout => "open_timeout",
            Self::ResponseTimeout => "response_timeout",
            Self::SessionLost => "session_lost",
            Self::Overloaded { .. } => "overloaded",
            Self::Draining => "draining",
            Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::ExpectationFailed
            | Self::BodyTimeout
            | Self::UriTooLong => "bad_request",
            Self::HeaderTooLarge | Self::CookiesTooLarge => "header_too_large",
            Self::Misdirected => "misdirected",
        }
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoSuchHost | Self::NoSuchPage | Self::NoDefaultPort => StatusCode::NOT_FOUND,
            Self::SignInRequired => StatusCode::UNAUTHORIZED,
            Self::PortNotAllowed => StatusCode::FORBIDDEN,
            Self::WorkspaceStopped
            | Self::AgentAbsent
            | Self::AgentUnreachable
            | Self::Overloaded { .. }
            | Self::Draining => StatusCode::SERVICE_UNAVAILABLE,
            Self::PortClosed
            | Self::AppClosed
            | Self::SshNotStarted
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::AgentWithoutTls
            | Self::SessionLost => StatusCode::BAD_GATEWAY,
            Self::OpenTimeout | Self::ResponseTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::BadRequest { .. } => StatusCode::BAD_REQUEST,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::ExpectationFailed => StatusCode::EXPECTATION_FAILED,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::UriTooLong => StatusCode::URI_TOO_LONG,
            Self::HeaderTooLarge | Self::CookiesTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
        }
    }

    /// Returns the side that the failure is of.
    #[must_use]
    pub fn side(&self) -> Side {
        match self {
            Self::PortClosed
            | Self::AppClosed
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::ResponseTimeout => Side::App,
            Self::WorkspaceStopped
            | Self::AgentAbsent
            | Self::SshNotStarted
            | Self::AgentWithoutTls
            | Self::NoDefaultPort => Side::Agent,
            Self::AgentUnreachable | Self::OpenTimeout | Self::SessionLost => Side::Way,
            Self::Draining => Side::Replica,
            // Not a bound, but the database that does not answer.
            Self::Overloaded { limit: "store" } => Side::Replica,
            Self::Overloaded { .. } => Side::Limit,
            Self::NoSuchHost | Self::SignInRequired | Self::PortNotAllowed => Side::Policy,
            Self::NoSuchPage
            | Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::ExpectationFailed
            | Self::BodyTimeout
            | Self::UriTooLong
            | Self::HeaderTooLarge
            | Self::CookiesTooLarge
            | Self::Misdirected => Side::Client,
        }
    }

    /// Returns the name of the failure for people.
    #[must_use]
    pub fn title(&self) -> &'static str {
        self.words().title
    }

    /// Returns what happened, for people.
    #[must_use]
    pub fn public_text(&self) -> &'static str {
        self.words().text
    }

    /// Returns what to do about it, for people.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        self.words().hint
    }

    /// Returns the name of the limit or rule behind the failure, if it has one.
    #[must_use]
    pub fn detail(&self) -> Option<&'static str> {
        match self {
            Self::Overloaded { limit } => Some(limit),
            Self::NoSuchPage => Some("no_such_page"),
            Self::NoDefaultPort => Some("no_default_port"),
            Self::AgentUnreachable => Some("peer"),
            Self::AppClosed => Some("app_closed"),
            Self::SshNotStarted => Some("ssh_not_started"),
            Self::AppAnswerInvalid => Some("app_answer_invalid"),
            Self::AppSpeaksNoTls => Some("app_speaks_no_tls"),
            Self::AppSpeaksTls => Some("app_speaks_tls"),
            Self::AgentWithoutTls => Some("agent_without_tls"),
            Self::ResponseTimeout => Some("timeouts.response_header"),
            Self::CookiesTooLarge => Some("cookies"),
            Self::BadRequest { reason } => Some(reason),
            Self::MethodNotAllowed => Some("method_not_allowed"),
            Self::ExpectationFailed => Some("expectation_unknown"),
            Self::BodyTimeout => Some("timeouts.request_body_idle"),
            Self::UriTooLong => Some("uri_too_long"),
            Self::NoSuchHost
            | Self::SignInRequired
            | Self::PortNotAllowed
            | Self::WorkspaceStopped
            | Self::AgentAbsent
            | Self::PortClosed
            | Self::OpenTimeout
            | Self::SessionLost
            | Self::Draining
            | Self::HeaderTooLarge
            | Self::Misdirected => None,
        }
    }

    /// Returns the reason, the same word in page, header, log and metric: the detail, or the code where it covers one case.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.detail().unwrap_or_else(|| self.code())
    }

    /// Returns the time after which a client may try again, in seconds.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u16> {
        match self {
            // About one redial of an agent whose link broke.
            Self::AgentAbsent | Self::AgentUnreachable => Some(3),
            // A workspace that is asked to start takes about so long.
            Self::WorkspaceStopped => Some(10),
            Self::Overloaded { limit } if *limit == Limit::FailedSignIns.name() => Some(10),
            Self::Overloaded { .. } | Self::Draining => Some(1),
            Self::NoSuchHost
            | Self::NoSuchPage
            | Self::NoDefaultPort
            | Self::SignInRequired
            | Self::PortNotAllowed
            | Self::PortClosed
            | Self::AppClosed
            | Self::SshNotStarted
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::AgentWithoutTls
            | Self::OpenTimeout
            | Self::ResponseTimeout
            | Self::SessionLost
            | Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::ExpectationFailed
            | Self::BodyTimeout
            | Self::UriTooLong
            | Self::HeaderTooLarge
            | Self::CookiesTooLarge
            | Self::Misdirected => None,
        }
    }

    /// Returns the interval at which the page of this failure reloads, in seconds: for failures that pass without the
    /// user.
    #[must_use]
    pub fn reload_after_seconds(&self) -> Option<u16> {
        match self {
            Self::AgentAbsent
            | Self::AgentUnreachable
            | Self::PortClosed
            | Self::AppClosed
            | Self::WorkspaceStopped => Some(5),
            Self::Draining => Some(2),
            Self::Overloaded { .. } => Some(10),
            Self::NoSuchHost
            | Self::NoSuchPage
            | Self::NoDefaultPort
            | Self::SignInRequired
            | Self::PortNotAllowed
            | Self::SshNotStarted
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::AgentWithoutTls
            | Self::OpenTimeout
            | Self::ResponseTimeout
            | Self::SessionLost
            | Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::ExpectationFailed
            | Self::BodyTimeout
            | Self::UriTooLong
            | Self::HeaderTooLarge
            | Self::CookiesTooLarge
            | Self::Misdirected => None,
        }
    }

    /// Says whether an HTTP/1.1 connection must close after the answer: after a request whose end may be read in two
    /// ways, or whose body the gateway will not read, the next bytes are not to be trusted.
    #[must_use]
    pub fn closes_connection(&self) -> bool {
        match self {
            Self::BadRequest { .. }
            | Self::MethodNotAllowed
            | Self::ExpectationFailed
            | Self::BodyTimeout
            | Self::UriTooLong
            | Self::HeaderTooLarge
            | Self::CookiesTooLarge
            | Self::Draining => true,
            Self::NoSuchHost
            | Self::NoSuchPage
            | Self::NoDefaultPort
            | Self::SignInRequired
            | Self::PortNotAllowed
            | Self::WorkspaceStopped
            | Self::AgentAbsent
            | Self::AgentUnreachable
            | Self::PortClosed
            | Self::AppClosed
            | Self::SshNotStarted
            | Self::AppAnswerInvalid
            | Self::AppSpeaksNoTls
            | Self::AppSpeaksTls
            | Self::AgentWithoutTls
            | Self::OpenTimeout
            | Self::ResponseTimeout
            | Self::SessionLost
            | Self::Overloaded { .. }
            | Self::Misdirected => false,
        }
    }

    fn words(&self) -> &'static Words {
        match self {
            Self::NoSuchHost => &NO_SUCH_HOST,
            Self::NoSuchPage => &NO_SUCH_PAGE,
            Self::NoDefaultPort => &NO_DEFAULT_PORT,
            Self::SignInRequired => &SIGN_IN_REQUIRED,
            Self::PortNotAllowed => &PORT_NOT_ALLOWED,
            Self::WorkspaceStopped => &WORKSPACE_STOPPED,
            Self::AgentAbsent | Self::AgentUnreachable => &AGENT_ABSENT,
            Self::PortClosed => &PORT_CLOSED,
            Self::AppClosed => &APP_CLOSED,
            Self::SshNotStarted => &SSH_NOT_STARTED,
            Self::AppAnswerInvalid => &APP_ANSWER_INVALID,
            Self::AppSpeaksNoTls => &APP_SPEAKS_NO_TLS,
            Self::AppSpeaksTls => &APP_SPEAKS_TLS,
            Self::AgentWithoutTls => &AGENT_WITHOUT_TLS,
            Self::OpenTimeout => &OPEN_TIMEOUT,
            Self::ResponseTimeout => &RESPONSE_TIMEOUT,
            Self::SessionLost => &SESSION_LOST,
            Self::Overloaded { .. } => &OVERLOADED,
            Self::Draining => &DRAINING,
            Self::BadRequest { .. } => &BAD_REQUEST,
            Self::MethodNotAllowed => &METHOD_NOT_ALLOWED,
            Self::ExpectationFailed => &EXPECTATION_FAILED,
            Self::BodyTimeout => &BODY_TIMEOUT,
            Self::UriTooLong => &URI_TOO_LONG,
            Self::HeaderTooLarge => &HEADER_TOO_LARGE,
            Self::CookiesTooLarge => &COOKIES_TOO_LARGE,
            Self::Misdirected => &MISDIRECTED,
        }
    }
}

const NO_SUCH_HOST: Words = Words {
    title: "No such workspace",
    text: "There is no workspace at this address, or it is not yours.",
    hint: "Check the address. If another user shared it with you, ask whether the share is still valid.",
};

const NO_SUCH_PAGE: Words = Words {
    title: "No such page",
    text: "The gateway itself has nothing at this address.",
    hint: "The list of workspaces is at the gateway's own address, and an app at its workspace's.",
};

const NO_DEFAULT_PORT: Words = Words {
    title: "No port in the address",
    text: "The workspace is connected, and its agent names no port for the address without one.",
    hint: "Put the port before the name, as in 3000-my-app, or start the agent with --default-port.",
};

const SIGN_IN_REQUIRED: Words = Words {
    title: "Sign-in required",
    text: "This address needs a signed-in user.",
    hint: "Open it in a browser to sign in, or send an API token.",
};

const PORT_NOT_ALLOWED: Words = Words {
    title: "Port not shared",
    text: "The workspace does not expose this port to you.",
    hint: "Ask the owner of the workspace to share the port.",
};

const WORKSPACE_STOPPED: Words = Words {
    title: "Workspace stopped",
    text: "The workspace is not running.",
    hint: "Its owner can start it, here or with gateway workspace start. While it starts or stops, wait a little.",
};

const AGENT_ABSENT: Words = Words {
    title: "Workspace not connected",
    text: "The agent of this workspace has no connection to the gateway now.",
    hint: "It usually reconnects within seconds. If not, look at the agent's log in the workspace.",
};

const PORT_CLOSED: Words = Words {
    title: "Nothing listens on this port",
    text: "The workspace is connected, but no program listens on this port.",
    hint: "Start the program, or check which port it uses. It must listen on 127.0.0.1 or ::1.",
};

const APP_CLOSED: Words = Words {
    title: "The app hung up",
    text: "A program listens on this port, but it closed the connection before it had answered.",
    hint: "Look at the app's own log. The port must speak HTTP; if it does so inside TLS, name it with protocol=https.",
};

const SSH_NOT_STARTED: Words = Words {
    title: "The SSH server does not start",
    text: "The workspace has an SSH server, but it does not start.",
    hint: "The agent's log says why. The terminal of the workspace works without it.",
};

const APP_ANSWER_INVALID: Words = Words {
    title: "The app's answer is not HTTP",
    text: "A program listens on this port, but what it answered is not HTTP, or can be read in more than one way.",
    hint: "Check that the port speaks HTTP, and the version of it that the agent names for the port.",
};

const APP_SPEAKS_NO_TLS: Words = Words {
    title: "The app does not speak TLS",
    text: "A program listens on this port, which is named with protocol=https or h2s, but it does not speak TLS, or not with that \
           version of HTTP inside.",
    hint: "Name the port with protocol=http1 or h2, or have the app serve HTTPS.",
};

const APP_SPEAKS_TLS: Words = Words {
    title: "The app speaks TLS",
    text: "A program listens on this port and answered in TLS, but the port is not named with it.",
    hint: "Name the port with protocol=https, as in --app 8443:protocol=https or in the devfile's endpoint.",
};

const AGENT_WITHOUT_TLS: Words = Words {
    title: "The agent cannot speak TLS to apps",
    text: "This port is named with protocol=https or h2s, and the workspace's agent is too old for it.",
    hint: "Start the workspace with a newer agent, or have the app serve HTTP on another port.",
};

const OPEN_TIMEOUT: Words = Words {
    title: "Workspace did not answer",
    text: "The workspace did not open the connection in time.",
    hint: "The workspace may be overloaded. Try again.",
};

const RESPONSE_TIMEOUT: Words = Words {
    title: "App did not answer",
    text: "The app accepted the request but sent no answer in time.",
    hint: "Look at the app's own log. Where answers take that long, raise timeouts.response_header of the gateway.",
};

const SESSION_LOST: Words = Words {
    title: "Connection to the workspace lost",
    text: "The workspace went away while it handled the request.",
    hint: "Reload the page. Check first whether the request already had its effect.",
};

const OVERLOADED: Words = Words {
    title: "Too much at once",
    text: "A limit of the gateway is reached. The detail names it.",
    hint: "Wait a moment and try again.",
};

const DRAINING: Words = Words {
    title: "Gateway restarting",
    text: "This part of the gateway is shutting down for maintenance.",
    hint: "Try again now: another part takes over.",
};

const BAD_REQUEST: Words = Words {
    title: "Bad request",
    text: "The request is malformed, or could be read in more than one way. The detail names the rule.",
    hint: "This is usually a fault of the client program.",
};

const METHOD_NOT_ALLOWED: Words = Words {
    title: "Method not allowed",
    text: "The gateway does not take this method.",
    hint: "Ports are reached with ordinary HTTP requests and WebSockets.",
};

const EXPECTATION_FAILED: Words = Words {
    title: "Expectation failed",
    text: "The request expects something other than 100-continue.",
    hint: "This is usually a fault of the client program.",
};

const BODY_TIMEOUT: Words = Words {
    title: "The request stopped coming",
    text: "The rest of the request's body did not come in time.",
    hint: "Check the connection, and try again.",
};

const URI_TOO_LONG: Words = Words {
    title: "Address too long",
    text: "The address of the request is longer than the gateway takes.",
    hint: "Send long data in the body of the request.",
};

const HEADER_TOO_LARGE: Words = Words {
    title: "Headers too large",
    text: "The request has more header data than the gateway takes.",
    hint: "Often these are cookies: delete the cookies of this site and try again.",
};

const COOKIES_TOO_LARGE: Words = Words {
    title: "Cookies too large",
    text: "The cookies of this site are larger than the gateway takes. The browser was told to delete them.",
    hint: "Reload the page. You may have to sign in again. Another app of this site may have set them.",
};

const MISDIRECTED: Words = Words {
    title: "Wrong connection",
    text: "The connection was made for another host.",
    hint: "Try again: the browser will open a new connection.",
};
