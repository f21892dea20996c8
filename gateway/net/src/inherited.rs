//! Sockets that a service manager opened before the gateway and keeps open after it (sd_listen_fds(3)): a restart
//! refuses no connection, because the kernel queues them meanwhile. Or those of the gateway whose place this process takes.

use std::io;
use std::net::{SocketAddr, TcpListener};

use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};
use thiserror::Error;

/// Listening sockets that this process inherited and that no listener has taken yet.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<(SocketAddr, TcpListener)>,
    /// Whether each has to be taken: no other process listens on it.
    are_all_wanted: bool,
}

/// A socket of the service manager cannot be used.
#[derive(Debug, Error)]
pub enum BadInherited {
    /// It is no TCP socket, or the kernel does not say where it listens.
    #[error(
        "socket {index} of the service manager (LISTEN_FDS) cannot be used: {error}; it has to be a listening TCP socket"
    )]
    Socket {
        /// Index of the socket, from 0.
        index: usize,
        /// The kernel's answer.
        #[source]
        error: io::Error,
    },
    /// No listener is configured there.
    #[error(
        "the service manager hands down a socket on {address} (LISTEN_FDS), and no listener has that port: set \
         listen.public, listen.agents or listen.admin to it, or take it out of the socket unit"
    )]
    Unclaimed {
        /// Address that it listens on.
        address: SocketAddr,
    },
}

impl InheritedSockets {
    /// Takes the sockets that the environment names (`LISTEN_FDS`, `LISTEN_PID`), if any.
    ///
    /// Must be called before other threads run: it removes the variables, so that no child sees them.
    ///
    /// # Errors
    /// [`BadInherited::Socket`].
    pub fn from_environment() -> Result<Self, BadInherited> {
        let mut given = ListenFd::from_env();
        let mut sockets = Vec::with_capacity(given.len());
        for index in 0..given.len() {
            let bad = |error| BadInherited::Socket { index, error };
            let Some(listener) = given.take_tcp_listener(index).map_err(bad)? else { continue };
            let address = listener.local_addr().map_err(bad)?;
            // A job that outlives the gateway must not hold its sockets.
            fcntl_setfd(&listener, FdFlags::CLOEXEC).map_err(|error| bad(error.into()))?;
            listener.set_nonblocking(true).map_err(bad)?;
            sockets.push((address, listener));
        }
        Ok(Self { sockets, are_all_wanted: true })
    }

    /// Takes the sockets of the gateway whose place this process takes. One for whose address there is no listener any more is
    /// closed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn handed_over(listeners: Vec<TcpListener>) -> io::Result<Self> {
        let with_address = |listener: TcpListener| {
            // A switch of the socket, which the other process has on too.
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let sockets = listeners.into_iter().map(with_address).collect::<io::Result<_>>()?;
        Ok(Self { sockets, are_all_wanted: false })
    }

    /// Takes the socket for a listener at `address`: the one with that address, or else with its port, because a
    /// manager may write "every address" differently.
    pub fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let position = |is_it: &dyn Fn(SocketAddr) -> bool| self.sockets.iter().position(|(at, _)| is_it(*at));
        let found = position(&|at| at == address).or_else(|| position(&|at| at.port() == address.port()))?;
        Some(self.sockets.swap_remove(found).1)
    }

    /// Checks that nothing is left over.
    ///
    /// # Errors
    /// [`BadInherited::Unclaimed`]: connections to it would wait for ever.
    pub fn finish(self) -> Result<(), BadInherited> {
        match self.sockets.first() {
            Some(&(address, _)) if self.are_all_wanted => Err(BadInherited::Unclaimed { address }),
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn given(count: usize) -> (InheritedSockets, Vec<SocketAddr>) {
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let sockets: Vec<_> =
            (0..count).map(bind).map(|listener| (listener.local_addr().expect("bound"), listener)).collect();
        let addresses = sockets.iter().map(|(address, _)| *address).collect();
        (InheritedSockets { sockets, are_all_wanted: true }, addresses)
    }

    #[test]
    fn socket_goes_to_the_listener_of_its_port_and_to_no_other() {
        let (mut inherited, addresses) = given(2);
        let every = SocketAddr::from((Ipv4Addr::UNSPECIFIED, addresses[1].port()));
        let taken = inherited.take(every).expect("its port");
        assert_eq!(taken.local_addr().expect("bound"), addresses[1]);
        assert!(inherited.take(addresses[1]).is_none(), "it is taken");
        assert!(inherited.take(addresses[0]).is_some());
        assert!(inherited.finish().is_ok());
    }

    #[test]
    fn socket_without_a_listener_is_named() {
        let (inherited, addresses) = given(1);
        let error = inherited.finish().expect_err("left over").to_string();
        assert!(error.contains(&addresses[0].to_string()) && error.contains("listen.public"), "{error}");
        // The gateway whose place this one takes listened elsewhere.
        let handed =
            InheritedSockets::handed_over(vec![TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")]);
        assert!(handed.expect("a socket").finish().is_ok());
    }
}
