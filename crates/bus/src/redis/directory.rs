//! The directory's entries in Redis: how they are written, read and reaped.
//! Never: an entry that outlives its node's lease and is still answered.

use redis::{Pipeline, Value};
use switchboard_protocol::id::{DeviceId, DeviceKey, OrgId};

use super::{
    link::Link,
    script::{self, LEASE_MS},
};
use crate::{
    backend::{Claimed, Entry, Presence, Release},
    error::BusError,
    node::{Epoch, NodeId},
};

/// How many entries of a dead node are looked at in one go.
const REAP_BATCH: usize = 512;

fn parse_entry(entry: &str) -> Option<Presence> {
    let mut parts = entry.split(' ');
    let epoch = Epoch(parts.next()?.parse().ok()?);
    let node = NodeId::from(parts.next()?);
    let digest = parts.next()?.parse().ok();
    Some(Presence {
        node,
        epoch,
        digest,
    })
}

impl Link {
    fn directory_keys(&self, org: OrgId) -> [String; 3] {
        [
            self.keys.directory(org),
            self.keys.ids(org),
            self.keys.orgs(),
        ]
    }

    pub(super) async fn claim(&self, device: &DeviceKey) -> Result<Claimed, BusError> {
        let mut claim = script::run(&self.scripts.claim, &self.directory_keys(device.org));
        claim
            .arg(device.device.as_str())
            .arg(self.node.as_str())
            .arg(device.org.to_string());
        let (epoch, former): (u64, String) = self.query(&claim).await?;
        Ok(Claimed {
            epoch: Epoch(epoch),
            former: parse_entry(&former),
        })
    }

    pub(super) async fn enter(&self, entries: Vec<Entry>) -> Result<Vec<Option<Epoch>>, BusError> {
        let mut commands = Pipeline::new();
        let shelf = self.keys.shelf(&self.node);
        for entry in &entries {
            if let (Some(digest), Some(json)) = (entry.digest, &entry.shelve) {
                commands
                    .hset(&shelf, digest.to_string(), &json[..])
                    .ignore();
                commands.pexpire(&shelf, 2 * LEASE_MS as i64).ignore();
            }
        }
        for entry in &entries {
            let digest = entry
                .digest
                .map_or_else(|| "-".to_owned(), |digest| digest.to_string());
            let mut enter =
                script::run(&self.scripts.enter, &self.directory_keys(entry.device.org));
            enter
                .arg(entry.device.device.as_str())
                .arg(self.node.as_str())
                .arg(entry.device.org.to_string())
                .arg(entry.epoch.0)
                .arg(digest);
            commands.add_command(enter);
        }
        let standing: Vec<String> = self.query_all(&commands).await?;
        Ok(standing
            .iter()
            .map(|epoch| epoch.parse().ok().map(Epoch))
            .collect())
    }

    pub(super) async fn release(&self, releases: Vec<Release>) -> Result<(), BusError> {
        let mut commands = Pipeline::new();
        for release in &releases {
            if let Some(digest) = release.unshelve {
                commands
                    .hdel(self.keys.shelf(&self.node), digest.to_string())
                    .ignore();
            }
            let DeviceKey { org, device } = &release.device;
            let mut command = script::run(&self.scripts.release, &self.directory_keys(*org));
            command
                .arg(device.as_str())
                .arg(org.to_string())
                .arg(release.epoch.0);
            commands.add_command(command).ignore();
        }
        self.query_all(&commands).await
    }

    pub(super) async fn find(
        &self,
        org: OrgId,
        devices: &[DeviceId],
    ) -> Result<Vec<Option<Presence>>, BusError> {
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let mut find = script::run(
            &self.scripts.find,
            &[self.keys.directory(org), self.keys.nodes()],
        );
        find.arg(LEASE_MS);
        for device in devices {
            find.arg(device.as_str());
        }
        let entries: Vec<String> = self.query(&find).await?;
        Ok(entries.iter().map(|entry| parse_entry(entry)).collect())
    }

    pub(super) async fn list(
        &self,
        org: OrgId,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        let keys = [
            self.keys.directory(org),
            self.keys.ids(org),
            self.keys.nodes(),
        ];
        let mut from = after.map_or_else(|| "-".to_owned(), |after| format!("({after}"));
        let mut live = Vec::new();
        while live.len() < limit {
            let wanted = limit - live.len();
            let mut list = script::run(&self.scripts.list, &keys);
            list.arg(LEASE_MS).arg(&from).arg(wanted);
            let found: Vec<String> = self.query(&list).await?;
            let mut found = found.into_iter();
            let seen: usize = found.next().and_then(|seen| seen.parse().ok()).unwrap_or(0);
            from = format!("({}", found.next().unwrap_or_default());
            while let (Some(device), Some(entry)) = (found.next(), found.next()) {
                live.extend(device.parse().ok().zip(parse_entry(&entry)));
            }
            if seen < wanted {
                break;
            }
        }
        Ok(live)
    }

    /// Renews the lease; takes out what nodes without a lease left behind.
    pub(super) async fn beat(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let dead: Vec<String> = self.query(&self.beat_command()).await?;
        let mut reaped = Vec::new();
        for node in dead {
            reaped.extend(self.reap(&node).await?);
            let mut forget = Pipeline::new();
            forget.zrem(self.keys.nodes(), &node).ignore();
            forget.del(self.keys.shelf(&NodeId::from(&*node))).ignore();
            self.query_all::<()>(&forget).await?;
            tracing::info!(
                node.id = node,
                devices = reaped.len(),
                "took out what a dead node left in the directory"
            );
        }
        Ok(reaped)
    }

    /// Looks through every organisation's live devices, a part at a time. It is rare, and
    /// spares every claim a second index.
    async fn reap(&self, node: &str) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let orgs: Vec<String> = self
            .query(redis::cmd("SMEMBERS").arg(self.keys.orgs()))
            .await?;
        let mut reaped = Vec::new();
        for org in orgs.iter().filter_map(|org| org.parse::<OrgId>().ok()) {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("HSCAN");
                scan.arg(self.keys.directory(org))
                    .arg(cursor)
                    .arg("COUNT")
                    .arg(REAP_BATCH);
                let (next, entries): (u64, Vec<String>) = self.query(&scan).await?;
                let theirs = entries
                    .chunks_exact(2)
                    .filter(|pair| {
                        parse_entry(&pair[1]).is_some_and(|presence| presence.node.as_str() == node)
                    })
                    .map(|pair| pair[0].clone())
                    .collect();
                reaped.extend(self.reap_devices(org, node, theirs).await?);
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(reaped)
    }

    async fn reap_devices(
        &self,
        org: OrgId,
        node: &str,
        devices: Vec<String>,
    ) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        if devices.is_empty() {
            return Ok(Vec::new());
        }
        let mut reap = script::run(&self.scripts.reap, &self.directory_keys(org));
        reap.arg(org.to_string()).arg(node).arg(&devices);
        let epochs: Vec<String> = self.query(&reap).await?;
        let pairs = devices.iter().zip(epochs);
        Ok(pairs
            .filter_map(|(device, epoch)| {
                let device = DeviceKey {
                    org,
                    device: device.parse().ok()?,
                };
                Some((device, Epoch(epoch.parse().ok()?)))
            })
            .collect())
    }

    /// Gives the lease back and closes the connection: nobody is heard here any more.
    pub(super) async fn leave(&self) -> Result<(), BusError> {
        let mut commands = Pipeline::new();
        commands
            .zrem(self.keys.nodes(), self.node.as_str())
            .ignore();
        commands.del(self.keys.shelf(&self.node)).ignore();
        let left = self.query_all::<Value>(&commands).await.map(|_| ());
        self.leave_service();
        left
    }
}
