//! The caller of a request and response over Redis pub/sub, without devices. It relies on the
//! pipelining of the client library and adds no batching.

use std::sync::Arc;

use futures_util::StreamExt as _;
use redis::{IntoConnectionInfo as _, aio::MultiplexedConnection, io::tcp::TcpSettings};
use tokio::task::JoinSet;

use super::{RedisOptions, closed_loop::Caller, payload, pending::Pending};

/// Pub/sub channel of the requests.
pub(super) const REQUESTS: &str = "bench:requests";
/// Pub/sub channel of the responses.
pub(super) const RESPONSES: &str = "bench:answers";

/// A node that sends requests and subscribes to the responses.
pub(super) struct RedisCaller {
    publisher: MultiplexedConnection,
    pending: Arc<Pending>,
    // Aborts the reader task when the caller is dropped.
    _reader: JoinSet<()>,
}

/// A client whose connections use TCP_NODELAY.
pub(super) fn client(url: &str) -> anyhow::Result<redis::Client> {
    let settings = TcpSettings::default().set_nodelay(true);
    Ok(redis::Client::open(
        url.into_connection_info()?.set_tcp_settings(settings),
    )?)
}

impl RedisCaller {
    pub(super) async fn start(options: RedisOptions) -> anyhow::Result<Self> {
        let client = client(&options.url)?;
        let publisher = client.get_multiplexed_async_connection().await?;
        let mut inbox = client.get_async_pubsub().await?;
        inbox.subscribe(RESPONSES).await?;
        let pending = Arc::new(Pending::default());
        let mut reader = JoinSet::new();
        reader.spawn({
            let pending = Arc::clone(&pending);
            inbox.into_on_message().for_each(move |message| {
                pending.complete(message.get_payload_bytes());
                std::future::ready(())
            })
        });
        Ok(Self {
            publisher,
            pending,
            _reader: reader,
        })
    }
}

impl Caller for RedisCaller {
    async fn call(&self, _worker: usize, _sequence: u64) -> anyhow::Result<()> {
        let (number, response) = self.pending.register();
        let mut request = number.to_be_bytes().to_vec();
        request.extend(payload());
        let mut publisher = self.publisher.clone();
        let publish = redis::cmd("PUBLISH").arg(REQUESTS).arg(request).to_owned();
        publish.query_async::<()>(&mut publisher).await?;
        self.pending.wait(number, response).await
    }
}
