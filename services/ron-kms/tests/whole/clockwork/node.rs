//! A whole service in the world: its handle, its HTTP door, its metrics, its end.

use std::sync::{Arc, Mutex};

use ron_core::{
    Join,
    app::Start,
    bus::{Bus, KernelEvent},
    seam::{Conn, Net},
    shutdown::Shutdown,
    supervisor::SupervisorView,
    telemetry::Telemetry,
};
use ron_kms::{
    config::Config,
    engine::Kms,
    keystore::KeyStore,
    service::{Ended, Options, Service},
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{ADDR, World, backend::Moody};

pub struct Node {
    pub world: World,
    pub kms: Kms,
    pub backend: Arc<Moody>,
    pub store: KeyStore,
    pub view: SupervisorView,
    pub telemetry: Telemetry,
    pub bus: Bus,
    pub stop: Shutdown,
    pub ended: Join<Ended>,
    config: Arc<Mutex<Arc<Config>>>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub json: Value,
}

impl Answer {
    pub fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or("")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn told(&self) -> (u16, &str) {
        (self.status, self.code())
    }
}

impl Node {
    pub async fn start(world: &World, change: impl FnOnce(&mut Config)) -> Node {
        let store = KeyStore::memory(&world.env()).unwrap();
        let backend = Arc::new(Moody::new(&world.env()));
        Node::again(world, store, backend, change).await
    }

    /// On the files, the store and the backend of one that ended.
    pub async fn again(
        world: &World,
        store: KeyStore,
        backend: Arc<Moody>,
        change: impl FnOnce(&mut Config),
    ) -> Node {
        Node::again_then(world, store, backend, change, || {}).await
    }

    /// `opened` is called once the log has been read, before any task runs.
    pub async fn again_then(
        world: &World,
        store: KeyStore,
        backend: Arc<Moody>,
        change: impl FnOnce(&mut Config),
        opened: impl FnOnce(),
    ) -> Node {
        let mut config = Config::default();
        config.audit.disk_reserve_bytes = 256 * 1024;
        change(&mut config);
        let env = world.env();
        let bus = Bus::new();
        let config = Arc::new(Mutex::new(Arc::new(config)));
        let source = config.clone();
        let start = Start::new(env.clone(), bus.clone(), config.lock().unwrap().clone());
        let options = Options {
            start: Start {
                source: Some(Arc::new(move || source.lock().unwrap().clone())),
                ..start
            },
            store: store.clone(),
            backend: backend.clone(),
        };
        let service = Service::open(options).await.unwrap();
        opened();
        let (kms, telemetry) = (service.kms(), service.telemetry().clone());
        let listener = world.listen(ADDR).await.unwrap();
        let stop = Shutdown::new();
        let (tell, view) = tokio::sync::oneshot::channel();
        let running = service.run(listener, stop.clone(), move |view| {
            let _ = tell.send(view);
        });
        let ended = env.spawn("service", running);
        let node = Node {
            world: world.clone(),
            kms,
            backend,
            store,
            view: view.await.unwrap(),
            telemetry,
            bus,
            stop,
            ended,
            config,
        };
        // The first checks and the first batch are done.
        world.pass(1).await;
        node
    }

    /// Changes the configuration and says so.
    pub fn reload(&self, version: u64, change: impl FnOnce(&mut Config)) {
        let mut current = self.config.lock().unwrap();
        let mut config = (**current).clone();
        change(&mut config);
        *current = Arc::new(config);
        self.bus.publish(KernelEvent::ConfigUpdated { version });
    }

    pub async fn connect(&self) -> Conn {
        self.world.connect(ADDR).await.unwrap()
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// Paths are below `/v1/kms`.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        let path = format!("/v1/kms{path}");
        self.send("POST", &path, &body.to_string()).await
    }

    async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let mut conn = self.connect().await;
        conn.write_all(request(method, path, body).as_bytes())
            .await
            .unwrap();
        read_answer(&mut conn).await
    }

    /// A new key's kid.
    pub async fn key(&self, alg: &str) -> String {
        let made = self
            .post("/keys", json!({ "purpose": "test", "alg": alg }))
            .await;
        assert_eq!(made.status, 201, "{}", made.json);
        made.json["kid"].as_str().unwrap().to_owned()
    }

    pub async fn sign(&self, kid: &str) -> Answer {
        let body = json!({ "kid": kid, "message": "aGVsbG8" });
        self.post("/sign", body).await
    }

    /// A line of `/metrics`, by its beginning; 0 if it is not there.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.telemetry.render();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// The gates that are missing, with their reasons.
    pub async fn missing(&self) -> Vec<String> {
        let ready = self.get("/readyz").await;
        let missing = ready.json["missing"].as_array().cloned();
        let missing: Vec<String> = missing
            .unwrap_or_default()
            .iter()
            .map(|m| m["gate"].as_str().unwrap_or("").to_owned())
            .collect();
        assert_eq!(ready.status, if missing.is_empty() { 200 } else { 503 });
        missing
    }

    /// Kills one living task of this name.
    pub fn kill(&self, name: &str) {
        let status = self.view.status();
        let task = status
            .tasks
            .iter()
            .find(|task| task.kind == name && task.state == "alive");
        assert!(self.view.kill(task.expect("one is alive").id));
    }

    pub async fn finish(self) -> Ended {
        self.stop.trigger();
        self.ended.await.unwrap()
    }
}

pub fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

pub async fn read_answer(conn: &mut Conn) -> Answer {
    let mut bytes = Vec::new();
    conn.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Answer {
        status: status.unwrap_or(0),
        head: head.to_owned(),
        json: serde_json::from_str(body).unwrap_or(Value::Null),
    }
}
