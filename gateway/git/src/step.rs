//! What is to be done to give out an access token: the rules, without I/O.
//!
//! Of all gateways on one database, one exchanges a refresh token at a time: many servers take the second use of one for a theft, and
//! end all that came of it. The others wait for its result, which is in the store.

use std::time::Duration;

use gateway_types::UnixSeconds;

/// Longest exchange, after which another gateway may try: longer than a request to the token endpoint takes, and storing its result.
pub const CLAIM_TIME: Duration = Duration::from_secs(30);

/// Time before its end from which an access token is given out no more: git may take this long until it shows it.
const MARGIN: Duration = Duration::from_secs(60);

/// Life of an access token whose server does not say it.
const LIFE_DEFAULT: Duration = Duration::from_secs(5 * 60);

/// Longest life that is believed.
const LIFE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// State of a credential with a refresh token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenState {
    /// Time until which the access token is given out; `None` if there is none.
    pub access_until: Option<UnixSeconds>,
    /// Time until which a gateway exchanges the refresh token.
    pub refreshing_until: UnixSeconds,
    /// The server said that the refresh token does not count any more.
    pub is_refused: bool,
}

/// Next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Give out the access token.
    Give,
    /// Claim the exchange, and make it.
    Refresh,
    /// Wait for the gateway that makes it, and look again.
    Wait,
    /// Only the owner can help.
    SignInAgain,
}

/// Decides on the next step.
#[must_use]
pub fn step(state: TokenState, now: UnixSeconds) -> Step {
    if state.access_until.is_some_and(|until| now < until) {
        Step::Give
    } else if state.is_refused {
        Step::SignInAgain
    } else if now < state.refreshing_until {
        Step::Wait
    } else {
        Step::Refresh
    }
}

/// Returns the time until which an access token is given out, and its end. One with a short life is given out for most of it.
#[must_use]
pub fn lifetime(expires_in: Option<u64>, now: UnixSeconds) -> (UnixSeconds, UnixSeconds) {
    let life = expires_in.map_or(LIFE_DEFAULT, Duration::from_secs).min(LIFE_MAX);
    let margin = MARGIN.min(life / 4);
    (now.later(life.saturating_sub(margin)), now.later(life))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> UnixSeconds {
        UnixSeconds::new(seconds)
    }

    fn state(access_until: Option<i64>, refreshing_until: i64, is_refused: bool) -> TokenState {
        TokenState { access_until: access_until.map(at), refreshing_until: at(refreshing_until), is_refused }
    }

    #[test]
    fn token_is_given_out_until_shortly_before_its_end_and_exchanged_by_one() {
        for (state, expected) in [
            (state(None, 0, false), Step::Refresh),
            (state(Some(101), 0, false), Step::Give),
            (state(Some(100), 0, false), Step::Refresh),
            (state(Some(100), 101, false), Step::Wait),
            (state(None, 100, false), Step::Refresh),
            (state(None, 0, true), Step::SignInAgain),
            // What was got before still counts.
            (state(Some(101), 0, true), Step::Give),
        ] {
            assert_eq!(step(state, at(100)), expected, "{state:?}");
        }
        assert_eq!(lifetime(Some(7200), at(0)), (at(7140), at(7200)));
        assert_eq!(lifetime(Some(20), at(0)), (at(15), at(20)));
        assert_eq!(lifetime(None, at(0)), (at(240), at(300)));
        assert_eq!(lifetime(Some(u64::MAX), at(0)).1, at(24 * 60 * 60));
    }

    /// What several gateways make of one credential, and a server that ends everything when a refresh token comes twice.
    #[derive(Debug)]
    struct World {
        now: i64,
        state: TokenState,
        version: u32,
        server_version: u32,
        is_ended: bool,
        exchanges: u32,
        /// Of each gateway: the version that it claimed, and the end of its exchange.
        exchanging: [Option<(u32, i64)>; 3],
    }

    impl World {
        fn turn(&mut self, gateway: usize, takes: i64) -> Option<Step> {
            match self.exchanging[gateway] {
                Some((version, ends)) if self.now >= ends => {
                    self.exchanging[gateway] = None;
                    // The server rotates the token, and the result is stored if the version is still the claimed one.
                    self.exchanges += 1;
                    if version == self.server_version {
                        self.server_version += 1
                    } else {
                        self.is_ended = true
                    }
                    if version == self.version {
                        let (until, _) = lifetime(Some(100), at(self.now));
                        self.version += 1;
                        self.state =
                            TokenState { access_until: Some(until), refreshing_until: at(0), is_refused: false };
                    }
                    None
                }
                Some(_) => None,
                None => {
                    let next = step(self.state, at(self.now));
                    if next == Step::Refresh {
                        self.state.refreshing_until = at(self.now).later(CLAIM_TIME);
                        self.exchanging[gateway] = Some((self.version, self.now + takes));
                    }
                    Some(next)
                }
            }
        }
    }

    proptest! {
        /// As long as an exchange is shorter than its claim, no refresh token is used twice, and a token is there soon.
        #[test]
        fn no_refresh_token_is_exchanged_twice(
            turns in prop::collection::vec((0_usize..3, 0_i64..12, 0_i64..20), 1..200),
        ) {
            let mut world = World {
                now: 1_000,
                state: state(None, 0, false),
                version: 0,
                server_version: 0,
                is_ended: false,
                exchanges: 0,
                exchanging: [None; 3],
            };
            let mut gave = 0_u32;
            for (gateway, pause, takes) in turns {
                // Exchanges end in their time, whatever else happens.
                for one in 0..3 {
                    if world.exchanging[one].is_some_and(|(_, ends)| world.now >= ends) {
                        world.turn(one, 0);
                    }
                }
                world.now += pause;
                for one in 0..3 {
                    if world.exchanging[one].is_some_and(|(_, ends)| world.now >= ends) {
                        world.turn(one, 0);
                    }
                }
                gave += u32::from(world.turn(gateway, takes) == Some(Step::Give));
                prop_assert!(!world.is_ended, "{world:?}");
                prop_assert!(world.exchanging.iter().flatten().count() <= 1, "{world:?}");
            }
            // One exchange is good for 75 s.
            let most = u32::try_from((world.now - 1_000) / 75).unwrap() + 1;
            prop_assert!(world.exchanges <= most, "{} exchanges, {gave} given, {world:?}", world.exchanges);
        }

        #[test]
        fn token_is_never_given_out_at_its_end(expires_in: Option<u64>, now in 0_i64..4_000_000_000) {
            let (until, ends) = lifetime(expires_in, at(now));
            prop_assert!(until <= ends && ends.get() - now <= 24 * 60 * 60);
            let state = TokenState { access_until: Some(until), refreshing_until: at(0), is_refused: false };
            prop_assert!(step(state, ends) != Step::Give);
        }
    }
}
