//! What tests of several modules need.

use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// An address at which nothing listens, and which nobody else is given meanwhile.
pub(crate) fn closed() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    (socket.local_addr().unwrap(), socket)
}
