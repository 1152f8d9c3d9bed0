//! Requests to devices behind an MQTT 5 broker, with response topic and correlation data.
//! Never: a quality of service above 0, which would cost the broker more.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use bytes::Bytes;
use rumqttc::{
    NetworkOptions,
    v5::{
        AsyncClient, Event, EventLoop, Incoming, MqttOptions,
        mqttbytes::{QoS, v5::PublishProperties},
    },
};
use tokio::task::JoinSet;

use super::{
    CallerOptions,
    closed_loop::{Caller, turn},
    device_name, payload,
    pending::Pending,
};

const ANSWERS: &str = "answers";

/// Requests that the client library holds before callers wait.
const QUEUE: usize = 4096;

/// One connection, many requests.
pub(super) struct MqttCaller {
    client: AsyncClient,
    pending: Arc<Pending>,
    topics: Vec<String>,
    payload: Bytes,
    // Ends with the caller.
    _reader: JoinSet<anyhow::Result<()>>,
}

impl MqttCaller {
    pub(super) async fn start(options: CallerOptions) -> anyhow::Result<Self> {
        let address = options.address;
        let mut settings = MqttOptions::new("caller", address.ip().to_string(), address.port());
        settings.set_keep_alive(Duration::from_secs(60));
        let mut network = NetworkOptions::new();
        network.set_tcp_nodelay(true);
        settings.set_network_options(network);
        let (client, mut events) = AsyncClient::new(settings, QUEUE);
        client.subscribe(ANSWERS, QoS::AtMostOnce).await?;
        while !matches!(events.poll().await?, Event::Incoming(Incoming::SubAck(_))) {}
        let pending = Arc::new(Pending::default());
        let mut reader = JoinSet::new();
        reader.spawn(read(events, Arc::clone(&pending)));
        Ok(Self {
            client,
            pending,
            topics: (0..options.devices).map(device_name).collect(),
            payload: payload().into(),
            _reader: reader,
        })
    }
}

async fn read(mut events: EventLoop, pending: Arc<Pending>) -> anyhow::Result<()> {
    loop {
        if let Event::Incoming(Incoming::Publish(answer)) = events.poll().await? {
            let properties = answer.properties.context("an answer without properties")?;
            pending.complete(
                &properties
                    .correlation_data
                    .context("an answer to nothing")?,
            );
        }
    }
}

impl Caller for MqttCaller {
    async fn call(&self, worker: usize, sequence: u64) -> anyhow::Result<()> {
        let device = turn(worker, sequence, u32::try_from(self.topics.len())?);
        let topic = self.topics[device as usize].as_str();
        let (number, answer) = self.pending.enter();
        let properties = PublishProperties {
            response_topic: Some(ANSWERS.to_owned()),
            correlation_data: Some(Bytes::copy_from_slice(&number.to_be_bytes())),
            ..PublishProperties::default()
        };
        let payload = self.payload.clone();
        self.client
            .publish_with_properties(topic, QoS::AtMostOnce, false, payload, properties)
            .await?;
        self.pending.wait(number, answer).await
    }
}
