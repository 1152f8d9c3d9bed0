//! Which server is the master, as its sentinels say, and that it is another now.
//! Never: the word of one sentinel where most of them say otherwise.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, ConnectionInfo, PushInfo, PushKind, Value, aio::MultiplexedConnection,
};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::address::{Sentinel, at};
use crate::error::BusError;

/// No sentinel is waited for longer.
const ASK_LIMIT: Duration = Duration::from_millis(400);
/// Between two looks at a master of which nothing was said.
const LOOK: Duration = Duration::from_secs(5);
/// Before another sentinel is listened to.
const PAUSE: Duration = Duration::from_millis(250);

/// The sentinels of one master.
pub(super) struct Sentinels {
    of: Sentinel,
    /// Which of them is listened to.
    heard: AtomicUsize,
}

impl Sentinels {
    pub(super) fn new(of: Sentinel) -> Self {
        Self {
            of,
            heard: AtomicUsize::new(0),
        }
    }

    /// Where the master is: what most say of those that answer.
    pub(super) async fn master(&self) -> Result<ConnectionInfo, BusError> {
        let mut said: Vec<((String, u16), usize)> = Vec::new();
        let mut unknown = false;
        for sentinel in &self.of.sentinels {
            let address = match timeout(ASK_LIMIT, self.ask(sentinel)).await {
                Ok(Ok(Some(address))) => address,
                Ok(Ok(None)) => {
                    unknown = true;
                    continue;
                }
                Ok(Err(error)) => {
                    tracing::debug!(%error, sentinel = %sentinel.addr(), "a sentinel did not answer");
                    continue;
                }
                Err(_) => continue,
            };
            match said.iter_mut().find(|(other, _)| *other == address) {
                Some((_, votes)) => *votes += 1,
                None => said.push((address, 1)),
            }
            if said
                .iter()
                .any(|(_, votes)| 2 * votes > self.of.sentinels.len())
            {
                break;
            }
        }
        // Of those with as many votes, the one that was named first.
        match said.into_iter().rev().max_by_key(|(_, votes)| *votes) {
            Some(((host, port), _)) => Ok(at(&self.of.master, &host, port)),
            None if unknown => Err(BusError::Unexpected(format!(
                "the sentinels know no master called {}",
                self.of.name
            ))),
            None => Err(BusError::Unavailable),
        }
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> Result<Option<(String, u16)>, BusError> {
        let client = redis::Client::open(sentinel.clone())?;
        let mut connection = client.get_multiplexed_async_connection().await?;
        Ok(self.ask_on(&mut connection).await?)
    }

    async fn ask_on(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<(String, u16)>, redis::RedisError> {
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.of.name);
        ask.query_async(connection).await
    }

    /// Ends when the master is another than this one.
    pub(super) async fn moved(&self, from: &ConnectionInfo) {
        loop {
            let turn = self.heard.load(Ordering::Relaxed) % self.of.sentinels.len().max(1);
            let Some(sentinel) = self.of.sentinels.get(turn) else {
                return std::future::pending().await;
            };
            match self.listen(sentinel, from).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(%error, sentinel = %sentinel.addr(), "a sentinel is not heard");
                    self.heard.store(turn + 1, Ordering::Relaxed);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Ends well when the master is another, and badly when this sentinel is not heard any more.
    async fn listen(
        &self,
        sentinel: &ConnectionInfo,
        from: &ConnectionInfo,
    ) -> Result<(), BusError> {
        let (told, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (switched, lost, name) = (
            Arc::clone(&told),
            Arc::clone(&gone),
            format!("{} ", self.of.name),
        );
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ASK_LIMIT))
            .set_response_timeout(Some(ASK_LIMIT))
            .set_push_sender(move |info: PushInfo| -> Result<(), redis::aio::SendError> {
                match info.kind {
                    PushKind::Message if is_about(&info.data, &name) => switched.notify_one(),
                    PushKind::Disconnection => lost.notify_one(),
                    _ => {}
                }
                Ok(())
            });
        let client = redis::Client::open(sentinel.clone())?;
        let mut connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        connection.subscribe("+switch-master").await?;
        loop {
            // What was said before this sentinel was heard counts as well.
            let here = self.ask_on(&mut connection).await?;
            let here = here.map(|(host, port)| at(&self.of.master, &host, port));
            if here.is_some_and(|here| here.addr() != from.addr()) {
                let most = self.master().await?;
                if most.addr() != from.addr() {
                    return Ok(());
                }
                // The others are about to hear of it, or this one is wrong.
                sleep(PAUSE).await;
                continue;
            }
            tokio::select! {
                () = told.notified() => {}
                () = gone.notified() => return Err(BusError::Unavailable),
                () = sleep(LOOK) => {}
            }
        }
    }
}

/// `+switch-master` begins with the name of the master that is meant.
fn is_about(data: &[Value], name: &str) -> bool {
    match data.get(1) {
        Some(Value::BulkString(message)) => message.starts_with(name.as_bytes()),
        _ => false,
    }
}
