//! The cable between a client and its servers, which a test may cut.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::engine::Engine;
use super::port::closed;
use super::{KitError, Port};

/// What a [`TcpProxy`] does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProxyMode {
    /// Passes bytes on, both ways.
    Forward,
    /// Cuts the open connections and refuses new ones.
    Refuse,
    /// Accepts connections and passes nothing on; what was sent meanwhile arrives when it forwards again.
    Blackhole,
}

/// A TCP proxy in front of one server, or of several that are alike.
pub struct TcpProxy {
    port: Port,
    mode: watch::Sender<ProxyMode>,
    /// The mode in which the accept loop is, which follows `mode`.
    reached: watch::Receiver<Option<ProxyMode>>,
    traffic: Arc<Traffic>,
    _engine: Engine,
}

#[derive(Debug, Default)]
struct Traffic {
    connections: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// What each connection knows.
#[derive(Clone)]
struct Cable {
    servers: Arc<[String]>,
    mode: watch::Receiver<ProxyMode>,
    traffic: Arc<Traffic>,
}

impl TcpProxy {
    /// Starts to forward to `server` (`HOST:PORT`), which need not run yet.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn start(server: impl Into<String>) -> Result<Self, KitError> {
        Self::balance([server.into()]).await
    }

    /// Starts to forward to these servers in turn, past those that do not accept.
    ///
    /// # Errors
    /// As said in the [module](super).
    pub async fn balance(servers: impl Into<Arc<[String]>>) -> Result<Self, KitError> {
        let engine = Engine::start()?;
        let port = Port::take()?;
        let traffic = Arc::new(Traffic::default());
        let (mode, modes) = watch::channel(ProxyMode::Forward);
        let (reach, reached) = watch::channel(None);
        let cable = Cable { servers: servers.into(), mode: modes, traffic: traffic.clone() };
        engine.handle().spawn(run(port.address(), cable, reach));
        let proxy = Self { port, mode, reached, traffic, _engine: engine };
        proxy.set_mode(ProxyMode::Forward).await?;
        Ok(proxy)
    }

    /// Where clients connect, as `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.port.address()
    }

    /// Changes the mode, and returns when new connections feel it.
    ///
    /// # Errors
    /// When the port cannot be listened on again, or stays open when it should refuse.
    pub async fn set_mode(&self, mode: ProxyMode) -> Result<(), KitError> {
        self.mode.send_replace(mode);
        let reached = self.reached.clone().wait_for(|reached| *reached == Some(mode)).await.map(|_mode| ());
        reached.map_err(|_ended| KitError::Answer {
            what: format!("the proxy on {} to {mode:?}", self.address()),
            answer: "its loop ended".to_owned(),
        })?;
        if mode == ProxyMode::Refuse { closed(&self.address()).await } else { Ok(()) }
    }

    /// How many connections were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.traffic.connections.load(Ordering::SeqCst)
    }

    /// How many bytes were passed on to the server so far.
    #[must_use]
    pub fn bytes_to_server(&self) -> u64 {
        self.traffic.to_server.load(Ordering::SeqCst)
    }

    /// How many bytes were passed on to clients so far.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.traffic.to_client.load(Ordering::SeqCst)
    }
}

/// Listens unless told to refuse. Ends with the engine, or when the port is lost.
async fn run(address: String, mut cable: Cable, reach: watch::Sender<Option<ProxyMode>>) {
    loop {
        let mode = *cable.mode.borrow_and_update();
        let ended = if mode == ProxyMode::Refuse {
            reach.send_replace(Some(mode));
            cable.mode.wait_for(|mode| *mode != ProxyMode::Refuse).await.is_err()
        } else {
            match TcpListener::bind(&address).await {
                Ok(listener) => accept(&listener, &mut cable, &reach).await.is_err(),
                Err(error) => {
                    eprintln!("tcp proxy: listening on {address} ({error})");
                    true
                }
            }
        };
        if ended {
            return;
        }
    }
}

/// Accepts until told to refuse; then listener and connections end with this function.
async fn accept(
    listener: &TcpListener,
    cable: &mut Cable,
    reach: &watch::Sender<Option<ProxyMode>>,
) -> Result<(), watch::error::RecvError> {
    let mut connections = JoinSet::new();
    loop {
        let mode = *cable.mode.borrow_and_update();
        if mode == ProxyMode::Refuse {
            connections.shutdown().await;
            return Ok(());
        }
        reach.send_replace(Some(mode));
        tokio::select! {
            // All arms are cancel safe: nothing is taken from listener, channel or set unless the arm runs.
            changed = cable.mode.changed() => changed?,
            accepted = listener.accept() => match accepted {
                Ok((client, _peer)) => {
                    let turn = cable.traffic.connections.fetch_add(1, Ordering::SeqCst);
                    let cable = cable.clone();
                    connections.spawn(async move {
                        if let Err(error) = connect(client, cable, turn).await {
                            eprintln!("tcp proxy: {error}");
                        }
                    });
                }
                Err(error) => eprintln!("tcp proxy: accepting ({error})"),
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connect(client: TcpStream, mut cable: Cable, turn: u64) -> io::Result<()> {
    wait_for_light(&mut cable.mode).await?;
    let server = any(&cable.servers, turn).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pump(from_client, to_server, cable.mode.clone(), &cable.traffic.to_server);
    let down = pump(from_server, to_client, cable.mode.clone(), &cable.traffic.to_client);
    tokio::try_join!(up, down).map(|((), ())| ())
}

/// The first server from `turn` on that accepts.
async fn any(servers: &[String], turn: u64) -> io::Result<TcpStream> {
    let first = usize::try_from(turn).unwrap_or_default();
    let mut refused = io::Error::other("the proxy has no server");
    for n in 0..servers.len() {
        match TcpStream::connect(&servers[(first + n) % servers.len()]).await {
            Ok(server) => return Ok(server),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut mode: watch::Receiver<ProxyMode>,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let length = from.read(&mut buffer).await?;
        wait_for_light(&mut mode).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        // Counted first: who has read a byte must find it counted.
        passed.fetch_add(length as u64, Ordering::SeqCst);
        to.write_all(&buffer[..length]).await?;
    }
}

async fn wait_for_light(mode: &mut watch::Receiver<ProxyMode>) -> io::Result<()> {
    let seen = mode.wait_for(|mode| *mode != ProxyMode::Blackhole).await.map(|_mode| ());
    seen.map_err(|_ended| io::Error::other("the proxy ended"))
}
