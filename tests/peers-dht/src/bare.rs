//! What cannot be avoided: frames of the same size, as many for each lookup, over as many warm connections.
//!
//! An asker writes alpha requests and reads their answers, then writes all the others and reads theirs, as a lookup
//! over warm connections does. Who answers reads a request and writes an answer. Nobody looks at what is in them.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};

use crate::{
    ALPHA, ASKERS,
    child::Shape,
    drive::{Found, Network},
};

pub struct Bare {
    shape: Shape,
    askers: Vec<Mutex<Asker>>,
}

struct Asker {
    connections: Vec<TcpStream>,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Bare {
    pub async fn start(shape: Shape) -> Bare {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let addr = listener.local_addr().expect("an address");
        let mut askers = Vec::new();
        for _ in 0..ASKERS {
            let mut connections = Vec::new();
            for _ in 0..shape.connections {
                let (dialled, accepted) = tokio::join!(TcpStream::connect(addr), listener.accept());
                let (dialled, (accepted, _)) =
                    (dialled.expect("a stream"), accepted.expect("a stream"));
                for stream in [&dialled, &accepted] {
                    stream.set_nodelay(true).expect("an option of TCP");
                }
                tokio::spawn(answer(accepted, shape));
                connections.push(dialled);
            }
            askers.push(Mutex::new(Asker {
                connections,
                request: vec![1; shape.request_bytes],
                answer: vec![0; shape.answer_bytes],
            }));
        }
        Bare { shape, askers }
    }
}

async fn answer(mut stream: TcpStream, shape: Shape) {
    let mut request = vec![0; shape.request_bytes];
    let answer = vec![2; shape.answer_bytes];
    while stream.read_exact(&mut request).await.is_ok() {
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

impl Asker {
    async fn wave(&mut self, from: usize, count: usize) -> std::io::Result<()> {
        let all = self.connections.len();
        for n in from..from + count {
            self.connections[n % all].write_all(&self.request).await?;
        }
        for n in from..from + count {
            self.connections[n % all]
                .read_exact(&mut self.answer)
                .await?;
        }
        Ok(())
    }
}

impl Network for Bare {
    async fn lookup(&self, asker: usize, target: [u8; 32]) -> Option<Found> {
        let mut asker = self.askers[asker].lock().await;
        let from = u32::from_be_bytes([0, target[0], target[1], target[2]]) as usize;
        asker.wave(from, ALPHA).await.ok()?;
        let rest = self.shape.requests.saturating_sub(ALPHA);
        asker.wave(from + ALPHA, rest).await.ok()?;
        Some(Found {
            closest: Vec::new(),
            requests: self.shape.requests as u32,
        })
    }

    fn closest(&self, _: usize, _: [u8; 32]) -> Vec<Vec<u8>> {
        Vec::new()
    }

    async fn shape(&self) -> Shape {
        self.shape
    }
}
