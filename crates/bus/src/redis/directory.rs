//! The directory's entries in Redis: how they are written, read and reaped.
//! Never: an entry that outlives its node's lease and is still answered.

use std::time::Instant;

use bytes::Bytes;
use redis::Pipeline;
use switchboard_protocol::{
    id::{DeviceId, DeviceKey, OrgId},
    schema::Digest,
};

use super::{
    link::Link,
    script::{self, LEASE_MS},
};
use crate::{
    backend::{Claimed, Entry, Presence, Release},
    error::BusError,
    node::{Epoch, NodeId},
};

/// How many entries are looked at in one go.
const SCAN_BATCH: usize = 512;

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
            .arg(device.org.to_string())
            .arg(self.keys.registered());
        let (epoch, former): (u64, String) = self.query(&claim).await?;
        Ok(Claimed {
            epoch: Epoch(epoch),
            former: parse_entry(&former),
        })
    }

    pub(super) async fn enter(&self, entries: Vec<Entry>) -> Result<Vec<Option<Epoch>>, BusError> {
        let mut commands = Pipeline::new();
        for entry in &entries {
            if let (Some(digest), Some(json)) = (entry.digest, &entry.shelve) {
                self.put_on_shelf(&mut commands, digest, json);
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
                .arg(digest)
                .arg(self.keys.registered());
            commands.add_command(enter);
        }
        let standing: Vec<String> = self.query_all(&commands).await?;
        Ok(standing
            .iter()
            .map(|epoch| epoch.parse().ok().map(Epoch))
            .collect())
    }

    pub(super) async fn release(&self, releases: Vec<Release>) -> Result<(), BusError> {
        if releases.is_empty() {
            return Ok(());
        }
        let mut commands = Pipeline::new();
        for release in &releases {
            match release {
                Release::Services(digest) => {
                    let shelf = self.keys.shelf(&self.node);
                    commands.hdel(shelf, digest.to_string()).ignore();
                }
                Release::Entry(DeviceKey { org, device }, epoch) => {
                    let keys = self.directory_keys(*org);
                    let mut command = script::run(&self.scripts.release, &keys);
                    command
                        .arg(device.as_str())
                        .arg(org.to_string())
                        .arg(epoch.0)
                        .arg(self.keys.registered());
                    commands.add_command(command).ignore();
                }
            }
        }
        self.query_all(&commands).await
    }

    pub(super) async fn shelve(&self, services: Vec<(Digest, Bytes)>) -> Result<(), BusError> {
        let mut commands = Pipeline::new();
        for (digest, json) in &services {
            self.put_on_shelf(&mut commands, *digest, json);
        }
        self.query_all(&commands).await
    }

    fn put_on_shelf(&self, commands: &mut Pipeline, digest: Digest, json: &Bytes) {
        let shelf = self.keys.shelf(&self.node);
        commands
            .hset(&shelf, digest.to_string(), &json[..])
            .ignore();
        commands
            .pexpire(&shelf, 2 * LEASE_MS.cast_signed())
            .ignore();
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

    /// Renews the lease; takes out what nodes without a lease left behind. What was taken out
    /// until something failed is answered all the same; the rest is the next beat's.
    pub(super) async fn beat(&self) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let (lapsed, dead): (bool, Vec<String>) = self.query(&self.beat_command()).await?;
        if lapsed {
            // This process stood still, or Redis was emptied: other nodes may have taken its entries out.
            self.lease_lapsed();
        }
        let mut reaped = Vec::new();
        for node in dead {
            let before = reaped.len();
            if let Err(error) = self.reap(&node, &mut reaped).await {
                tracing::warn!(%error, node.id = node, "a dead node's entries are still in the directory");
                break;
            }
            tracing::info!(
                node.id = node,
                devices = reaped.len() - before,
                "took out what a dead node left in the directory"
            );
        }
        Ok(reaped)
    }

    async fn reap(&self, node: &str, reaped: &mut Vec<(DeviceKey, Epoch)>) -> Result<(), BusError> {
        let entries = self.entries_of(node).await?;
        for chunk in entries.chunks(SCAN_BATCH) {
            for of_org in chunk.chunk_by(|(one, _), (other, _)| one.org == other.org) {
                reaped.extend(self.reap_devices(node, of_org).await?);
            }
        }
        let mut forget = Pipeline::new();
        forget.zrem(self.keys.nodes(), node).ignore();
        forget.del(self.keys.shelf(&NodeId::from(node))).ignore();
        self.query_all(&forget).await
    }

    /// Every entry under a node: looks through every organisation's live devices, a part at a
    /// time. It is rare, and spares every claim a second index.
    pub(super) async fn entries_of(&self, node: &str) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let orgs: Vec<String> = self
            .query(redis::cmd("SMEMBERS").arg(self.keys.orgs()))
            .await?;
        let mut entries = Vec::new();
        for org in orgs.iter().filter_map(|org| org.parse::<OrgId>().ok()) {
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("HSCAN");
                scan.arg(self.keys.directory(org))
                    .arg(cursor)
                    .arg("COUNT")
                    .arg(SCAN_BATCH);
                let (next, found): (u64, Vec<(String, String)>) = self.query(&scan).await?;
                entries.extend(found.iter().filter_map(|(device, entry)| {
                    let presence =
                        parse_entry(entry).filter(|presence| presence.node.as_str() == node)?;
                    Some((
                        DeviceKey {
                            org,
                            device: device.parse().ok()?,
                        },
                        presence.epoch,
                    ))
                }));
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Takes out entries of one organisation that still are this node's.
    async fn reap_devices(
        &self,
        node: &str,
        entries: &[(DeviceKey, Epoch)],
    ) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let Some((DeviceKey { org, .. }, _)) = entries.first() else {
            return Ok(Vec::new());
        };
        let mut reap = script::run(&self.scripts.reap, &self.directory_keys(*org));
        reap.arg(org.to_string())
            .arg(node)
            .arg(self.keys.registered());
        for (device, _) in entries {
            reap.arg(device.device.as_str());
        }
        let epochs: Vec<String> = self.query(&reap).await?;
        let pairs = entries.iter().zip(epochs);
        Ok(pairs
            .filter_map(|((device, _), epoch)| Some((device.clone(), Epoch(epoch.parse().ok()?))))
            .collect())
    }

    /// Closes the connection: nobody is heard here any more. Gives the lease back if nothing is
    /// left that would have to be reaped.
    pub(super) async fn leave(&self, clean: bool) -> Result<(), BusError> {
        let mut commands = Pipeline::new();
        if clean {
            commands
                .zrem(self.keys.nodes(), self.node.as_str())
                .ignore();
            commands.del(self.keys.shelf(&self.node)).ignore();
        }
        let left = if clean {
            self.query_all(&commands).await
        } else {
            Ok(())
        };
        self.leave_service(Instant::now());
        left
    }
}
