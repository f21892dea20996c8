//! Helpers for tests of several modules.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// Returns an address at which nothing listens, and which is given to no other socket meanwhile.
pub(crate) fn closed() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    (socket.local_addr().unwrap(), socket)
}
