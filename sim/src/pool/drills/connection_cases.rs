//! What may happen on a connection: one case each, with what is to come of it.

use std::time::{Duration, Instant};

use super::{
    Verdict, agree,
    connection::House,
    connection_client::{Answer, Client, request},
    demand,
    serve::BESIDES,
};

/// A body of which this much or less is left unread does not end the connection.
const LITTLE: usize = 32 * 1024;

impl House<'_> {
    pub async fn open(&mut self) -> Result<Client, String> {
        let conn = self.server.open().await?;
        self.expected.accepted += 1;
        Ok(Client::new(&self.bench.env, conn))
    }

    /// Not before its time, and not long after.
    fn in_time(&self, what: &str, from: Instant, at: Instant, limit: Duration) -> Verdict {
        let (took, most) = (at - from, limit + BESIDES + self.pulse.missed() * 2);
        demand((limit..=most).contains(&took), || {
            format!("{what}: expected {limit:?} to {most:?}, came {took:?}")
        })
    }

    /// Some sound request, answered as it should be.
    pub async fn ask_something(&mut self, client: &mut Client) -> Verdict {
        let (request, status, body) = self.something();
        client.ask(&request).await?.is("a request", status, &body)
    }

    fn something(&mut self) -> (Vec<u8>, u16, Vec<u8>) {
        match self.bench.pick(0, 4) {
            0 => (request("GET", "/", "", None), 200, b"ok".to_vec()),
            1 => (
                request("GET", "/slow/2000", "", None),
                200,
                b"done".to_vec(),
            ),
            2 => (request("HEAD", "/", "", None), 200, Vec::new()),
            _ => {
                let body = vec![b'e'; self.bench.pick(0, 300) as usize];
                (request("POST", "/echo", "", Some(&body)), 200, body)
            }
        }
    }
}

/// Requests with pauses that are shorter than the idle limit, together longer; then it is left alone.
pub async fn kept_alive(house: &mut House<'_>) -> Verdict {
    let idle = house.server.options.idle;
    let mut client = house.open().await?;
    let mut asked = house.bench.env.now();
    for n in 0..house.bench.pick(3, 4) {
        if n > 0 {
            let pause = idle * house.bench.pick(40, 60) as u32 / 100;
            house.bench.env.sleep(pause).await;
        }
        asked = house.bench.env.now();
        house.ask_something(&mut client).await?;
    }
    if house.bench.one_in(3) {
        return Ok(());
    }
    let (rest, at) = client.end().await;
    agree("what is said to an idle client", rest.len(), 0)?;
    house.expected.idle = 1;
    house.in_time("idle", asked, at, idle)
}

/// A head that comes in drops, as the first or a later one; or just in time.
pub async fn slow_head(house: &mut House<'_>) -> Verdict {
    let limit = house.server.options.header_read;
    let mut began = house.bench.env.now();
    let mut client = house.open().await?;
    let earlier = house.bench.pick(0, 2);
    for _ in 0..earlier {
        house.ask_something(&mut client).await?;
    }
    if earlier > 0 {
        // Longer than the limit, but between requests nothing is awaited.
        let pause = limit * house.bench.pick(0, 2) as u32;
        house.bench.env.sleep(pause).await;
        began = house.bench.env.now();
    }
    if earlier > 0 || house.bench.one_in(2) {
        client
            .send(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-slow: ")
            .await?;
    }
    if house.bench.one_in(3) && earlier > 0 {
        house.bench.env.sleep(limit / 2).await;
        let answer = client.ask(b"a\r\n\r\n").await?;
        return answer.is("a head in two pieces", 200, b"ok");
    }
    let patience = house.server.options.idle * 2;
    while !client.closed_within(limit / 5).await {
        let waited = house.bench.env.now() - began;
        demand(waited < patience, || {
            format!("a slow head was borne for {waited:?}, {earlier} requests before it")
        })?;
        if earlier > 0 {
            client.try_send(b"a").await;
        }
    }
    let at = house.bench.env.now();
    house.expected.header_read = 1;
    house.in_time(&format!("head {earlier}"), began, at, limit)
}

/// A body in pieces, each in time though the whole takes long; and one whose rest never comes.
pub async fn slow_body(house: &mut House<'_>) -> Verdict {
    let limit = house.server.options.body_read;
    let mut client = house.open().await?;
    client
        .send(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 40\r\n\r\n")
        .await?;
    for _ in 0..4 {
        house.bench.env.sleep(limit / 2).await;
        client.send(&[b'p'; 10]).await?;
    }
    let answer = client.answer(true).await?;
    answer.is("a body in pieces", 200, &[b'p'; 40])?;
    agree("its connection", answer.header("connection"), None)?;
    let began = house.bench.env.now();
    client
        .send(b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 40\r\n\r\nhalf")
        .await?;
    let answer = client.answer(true).await?;
    let at = house.bench.env.now();
    agree("a body that stops", answer.status, 408)?;
    house.expected.body_read = 1;
    house.in_time("a body that stops", began, at, limit)?;
    let (rest, _) = client.end().await;
    agree("what follows it", rest.len(), 0)
}

/// A body that nobody reads: the client is told that the connection ends if much of it is left.
pub async fn refused_body(house: &mut House<'_>) -> Verdict {
    let mut client = house.open().await?;
    if house.bench.one_in(2) {
        house.ask_something(&mut client).await?;
    }
    let len = house
        .bench
        .one_of(&[1, 500, LITTLE - 1, LITTLE, LITTLE + 1, LITTLE + 9000]);
    let chunked = house.bench.one_in(4);
    let body = vec![b'r'; len];
    if chunked {
        let head = "POST /refuse HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(format!("{head}{len:x}\r\n").as_bytes()).await?;
        client.try_send(&body).await;
        client.try_send(b"\r\n0\r\n\r\n").await;
    } else {
        client
            .try_send(&request("POST", "/refuse", "", Some(&body)))
            .await;
    }
    let answer = client.answer(true).await?;
    agree("a body that is not wanted", answer.status, 413)?;
    let told = format!("connection after {len} unread bytes, chunked {chunked}");
    if chunked || len > LITTLE {
        agree(&told, answer.header("connection"), Some("close"))?;
        let (rest, _) = client.end().await;
        return agree("what follows it", rest.len(), 0);
    }
    agree(&told, answer.header("connection"), None)?;
    client.try_send(&request("GET", "/", "", None)).await;
    // It may go on or not.
    match client.answer(true).await {
        Ok(next) => next.is("the next request", 200, b"ok"),
        Err(_) => Ok(()),
    }
}

/// As many connections as there is room for: one more takes the place of the longest idle one, or is refused while
/// nobody is idle, until one of them ends.
pub async fn crowd(house: &mut House<'_>) -> Verdict {
    let mut clients = Vec::new();
    for _ in 0..house.server.options.max_conns {
        let mut client = house.open().await?;
        house.ask_something(&mut client).await?;
        clients.push(client);
    }
    let mut late = house.open().await?;
    house.ask_something(&mut late).await?;
    house.expected.made_room += 1;
    let (rest, _) = clients.remove(0).end().await;
    agree("what was said to the one that made room", rest.len(), 0)?;
    clients.push(late);
    for client in &mut clients {
        client.send(b"GET / HTTP/1.1\r\nx-busy: ").await?;
    }
    house.bench.env.sleep(Duration::from_millis(5)).await;
    for _ in 0..house.bench.pick(1, 2) {
        let mut late = Client::new(&house.bench.env, house.server.open().await?);
        house.expected.refused += 1;
        let answer = late.answer(true).await?;
        agree("one connection too many", answer.status, 503)?;
        let body = String::from_utf8_lossy(&answer.body);
        let told = body.contains("\"too_many_connections\"");
        agree(&format!("its word in {body}"), told, true)?;
        agree("come back after", answer.header("retry-after"), Some("1"))?;
        agree("its connection", answer.header("connection"), Some("close"))?;
        let (rest, _) = late.end().await;
        agree("what follows it", rest.len(), 0)?;
    }
    for client in &mut clients {
        let answer = client.ask(b"1\r\nhost: localhost\r\n\r\n").await?;
        answer.is("what was half said", 200, b"ok")?;
    }
    drop(clients.pop());
    // Its end has to be noticed.
    house.bench.env.sleep(Duration::from_millis(10)).await;
    let mut client = house.open().await?;
    house.ask_something(&mut client).await
}

/// Several requests at once, answered in order; then the client says that it was the last, or just stops sending.
pub async fn in_a_row(house: &mut House<'_>) -> Verdict {
    let mut client = house.open().await?;
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..house.bench.pick(1, 4) {
        let (request, status, body) = house.something();
        expected.push((!request.starts_with(b"HEAD "), status, body));
        bytes.extend(request);
    }
    let says_so = house.bench.one_in(2);
    if says_so {
        bytes.extend(request("GET", "/", "connection: close\r\n", None));
        expected.push((true, 200, b"ok".to_vec()));
    }
    let began = house.bench.env.now();
    client.send(&bytes).await?;
    for (n, (with_body, status, body)) in expected.iter().enumerate() {
        let answer: Answer = client.answer(*with_body).await?;
        answer.is(&format!("answer {n} in a row"), *status, body)?;
        let last = says_so && n + 1 == expected.len();
        agree(
            "its connection",
            answer.header("connection"),
            last.then_some("close"),
        )?;
    }
    if !says_so {
        client.finish().await;
    }
    let (rest, at) = client.end().await;
    agree("what follows the last", rest.len(), 0)?;
    // Without waiting for any limit: four requests of two milliseconds each.
    house.in_time("the end after the last", began, at, Duration::ZERO)
}

/// What is no request at all, and a handler that panics.
pub async fn unsound(house: &mut House<'_>) -> Verdict {
    let mut client = house.open().await?;
    if house.bench.one_in(2) {
        let answer = client.ask(&request("GET", "/panics", "", None)).await?;
        answer.is("a panic", 500, b"")?;
        house.expected.panics = 1;
    }
    house.ask_something(&mut client).await?;
    let answer = client.ask(b"no request\r\n\r\n").await?;
    house.expected.malformed = 1;
    agree("what is no request", answer.status, 400)?;
    let body = String::from_utf8_lossy(&answer.body);
    let told = body.contains("\"malformed_request\"");
    agree(&format!("its word in {body}"), told, true)?;
    let (rest, _) = client.end().await;
    agree("what follows it", rest.len(), 0)
}
