//! Whose response is cut off when clients have not read too much: not that of a client that reads,
//! nor that of a small one, nor that of an owner below its part of the budget.

use socket2::SockRef;
use tokio::{net::TcpSocket, sync::watch, task::JoinSet};

use super::{
    shares::{ATTACKER, KIB, OTHER, Shares, limits, org_name, serve_shares_at},
    *,
};

const BUDGET: &str = "http_responses";
const MIB: usize = KIB * KIB;
/// Of a connection, on both sides. What the kernels do not buffer waits in the server.
const BUFFER_BYTES: usize = 32 * KIB;
/// More than the time after which a reader without progress is slow.
const STALL: Duration = Duration::from_secs(2);
/// What the client that reads takes at a time, and the pause after it.
const SIP_BYTES: usize = 16 * KIB;
const SIP_INTERVAL: Duration = Duration::from_millis(10);

fn serve() -> Shares {
    let listener = listen("127.0.0.1:0").unwrap();
    // Connections have the buffers of their listener.
    let socket = SockRef::from(&listener);
    socket.set_send_buffer_size(BUFFER_BYTES).unwrap();
    serve_shares_at(listener, limits())
}

/// A client that has asked for a response and reads nothing yet.
struct Reader {
    socket: TcpStream,
    bytes: usize,
}

impl Reader {
    /// The response to an organisation, or to the address itself. It is charged when this returns.
    async fn start(server: &Shares, from: &str, org: Option<u128>, bytes: usize) -> Self {
        let reader = Self::ask(server, from, org, bytes).await;
        let owner = org.map_or(from.to_owned(), org_name);
        let held = server.held(BUDGET, &owner);
        server.wait_for(BUDGET, &owner, held + bytes).await;
        reader
    }

    async fn ask(server: &Shares, from: &str, org: Option<u128>, bytes: usize) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        let buffer = u32::try_from(BUFFER_BYTES).unwrap();
        socket.set_recv_buffer_size(buffer).unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let mut socket = socket.connect(server.addr).await.unwrap();
        let request = match org {
            Some(org) => {
                format!("GET /org/bytes/{bytes} HTTP/1.1\r\nHost: x\r\nx-org: {org}\r\n\r\n")
            }
            None => format!("GET /bytes/{bytes} HTTP/1.1\r\nHost: x\r\n\r\n"),
        };
        socket.write_all(request.as_bytes()).await.unwrap();
        Self { socket, bytes }
    }

    /// Reads everything; returns whether the response was complete.
    async fn completes(self) -> bool {
        let (unwatched, _) = watch::channel(0);
        let (_, hurry) = watch::channel(true);
        self.read(unwatched, hurry).await
    }

    /// Reads a little at a time until the other side of `hurry` is true or gone, then the rest.
    async fn read(mut self, progress: watch::Sender<usize>, hurry: watch::Receiver<bool>) -> bool {
        let read = async {
            while self.socket.read_u8().await? != b'x' {}
            let (mut count, mut sip) = (1, vec![0; SIP_BYTES]);
            while count < self.bytes {
                match self.socket.read(&mut sip).await? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    bytes => count += bytes,
                }
                progress.send_replace(count);
                if !*hurry.borrow() {
                    tokio::time::sleep(SIP_INTERVAL).await;
                }
            }
            Ok::<_, std::io::Error>(())
        };
        timeout(LONG_TIMEOUT, read).await.expect("in time").is_ok()
    }
}

/// Time passes in which clients without progress become slow.
async fn stall() {
    tokio::time::pause();
    tokio::time::advance(STALL).await;
    tokio::time::resume();
}

#[tokio::test]
async fn client_that_reads_keeps_its_connection_beside_slow_ones() {
    let server = serve();
    let start = async |bytes| Reader::start(&server, ATTACKER, Some(1), bytes).await;
    // It has the oldest piece, and the largest one.
    let reading = start(7 * MIB).await;
    let (progress, mut read) = watch::channel(0);
    let (hurry, hurried) = watch::channel(false);
    let mut tasks = JoinSet::from_iter([reading.read(progress, hurried)]);
    let slow = [start(5 * MIB).await, start(4 * MIB).await];
    for stalls in [true, false] {
        // While it reads this, half a second or longer, the kernels fill the buffers of the others.
        let next = *read.borrow_and_update() + 50 * SIP_BYTES;
        let reads = timeout(LONG_TIMEOUT, read.wait_for(|count| *count > next));
        assert!(
            *reads.await.unwrap().unwrap() < 6 * MIB,
            "it is still reading"
        );
        if stalls {
            stall().await;
        }
    }
    let newcomer = Reader::ask(&server, ATTACKER, Some(1), 2 * MIB).await;
    assert!(newcomer.completes().await);
    hurry.send_replace(true);
    assert!(tasks.join_next().await.unwrap().unwrap(), "it was cut off");
    let [larger, smaller] = slow;
    assert!(!larger.completes().await && smaller.completes().await);
}

#[tokio::test]
async fn small_response_is_not_cut_off_for_large_ones() {
    let server = serve();
    let start = async |bytes| Reader::start(&server, ATTACKER, Some(1), bytes).await;
    let small = start(256 * KIB).await;
    let mut large = Vec::new();
    for bytes in [5 * MIB, 5 * MIB, 5 * MIB] {
        large.push(start(bytes).await);
    }
    stall().await;
    let newcomer = Reader::ask(&server, ATTACKER, Some(1), 4 * MIB).await;
    assert!(newcomer.completes().await);
    assert!(small.completes().await);
    let mut complete = 0;
    for large in large {
        complete += usize::from(large.completes().await);
    }
    assert_eq!(complete, 2);
}

#[tokio::test]
async fn slow_reader_of_an_address_below_its_part_is_not_cut_off() {
    let server = serve();
    // It has the oldest pieces, and more of them than any other owner.
    let mut modest = Vec::new();
    for _ in 0..4 {
        modest.push(Reader::start(&server, OTHER, None, MIB).await);
    }
    let mut large = Vec::new();
    for owner in [None, Some(1), Some(2)] {
        for _ in 0..2 {
            large.push(Reader::start(&server, ATTACKER, owner, 8 * MIB).await);
        }
    }
    stall().await;
    // There are 12 MiB left for it.
    let newcomer = Reader::ask(&server, ATTACKER, Some(3), 14 * MIB).await;
    assert!(newcomer.completes().await);
    for modest in modest {
        assert!(modest.completes().await);
    }
    let mut complete = 0;
    for large in large {
        complete += usize::from(large.completes().await);
    }
    assert_eq!(complete, 5);
}
