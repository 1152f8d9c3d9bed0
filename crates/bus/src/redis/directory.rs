//! The directory's entries in Redis: written, read, and removed when their node's lease expired.

use std::{collections::HashSet, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use redis::{Cmd, RedisError, Value};
use switchboard_protocol::id::{DeviceId, DeviceKey, DeviceRange, OrgId};

use super::{
    client::{CommandGroup, RedisClient, millis},
    keys::Keys,
    scripts::{self, LEASE_MS, Scripts},
};
use crate::{
    backend::{
        BackendFuture, Claim, Directory, Entry, Presence, Release, Renewal, Stats, Upserted,
    },
    error::BusError,
    metrics::Command,
    node::{Epoch, NodeId},
    quotas::too_many_devices,
};

/// Entries that are read in one round trip. Calls that look up wait for it.
const SCAN_BATCH: usize = 128;
/// How long a node has for the removal of a dead node's entries before another node begins it too.
const REMOVAL_TIME: Duration = Duration::from_secs(15);

/// Nodes that are listed.
const MAX_NODES: isize = 1_000;

/// The bounds of a range in a sorted set.
fn lexical(range: DeviceRange<'_>) -> (String, String) {
    let mark = if range.includes_start() { '[' } else { '(' };
    let from = match range.start() {
        "" => "-".to_owned(),
        start => format!("{mark}{start}"),
    };
    (from, format!("({}", range.end()))
}

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

/// Invariant: an entry that outlives its node's lease is not returned by a lookup.
impl Directory for RedisClient {
    fn claim<'a>(&'a self, device: &'a DeviceKey, limit: Option<u64>) -> BackendFuture<'a, Claim> {
        self.timed(Command::Claim, async move {
            let [live, ids, orgs, _] = self.directory_keys(device.org);
            let names = [live, ids, orgs];
            let mut claim = scripts::call(&self.scripts.claim, &names);
            claim
                .arg(device.device.as_str())
                .arg(self.node.as_str())
                .arg(device.org.to_string())
                .arg(limit.unwrap_or(0))
                .arg(self.last_epoch.load(Ordering::Relaxed));
            let (epoch, previous, is_entered): (String, String, bool) =
                self.query(&names[0], &claim).await?;
            let Ok(epoch) = epoch.parse() else {
                let used = previous.parse().unwrap_or_default();
                return Err(too_many_devices(used, limit.unwrap_or(0)));
            };
            self.last_epoch.fetch_max(epoch, Ordering::Relaxed);
            Ok(Claim {
                epoch: Epoch(epoch),
                previous: parse_entry(&previous),
                is_entered,
            })
        })
    }

    fn upsert(&self, entries: Vec<Entry>, max_bytes: u64) -> BackendFuture<'_, Vec<Upserted>> {
        self.timed(Command::Enter, self.upsert_entries(entries, max_bytes))
    }

    fn release(&self, releases: Vec<Release>) -> BackendFuture<'_, ()> {
        self.timed(Command::Enter, async move {
            if releases.is_empty() {
                return Ok(());
            }
            let mut commands = CommandGroup::default();
            for release in &releases {
                let DeviceKey { org, device } = &release.device;
                let names = self.directory_keys(*org);
                let mut command = scripts::call(&self.scripts.release, &names);
                command
                    .arg(device.as_str())
                    .arg(org.to_string())
                    .arg(release.epoch.0);
                self.add_catalog_channel(&mut command, *org);
                command
                    .arg(release.moving_for.as_millis())
                    .arg(self.keys.moving(&release.device));
                commands.add(&names[0], command);
            }
            self.query_all(commands).await.map(|_| ())
        })
    }

    fn find<'a>(
        &'a self,
        org: OrgId,
        devices: &'a [DeviceId],
    ) -> BackendFuture<'a, Vec<Option<Presence>>> {
        self.timed(Command::Lookup, async move {
            if devices.is_empty() {
                return Ok(Vec::new());
            }
            let mut names = vec![self.keys.directory(org)];
            names.extend(self.readable_leases());
            let mut find = scripts::call(&self.scripts.find, &names);
            find.arg(LEASE_MS);
            for device in devices {
                find.arg(device.as_str());
            }
            let entries: Vec<String> = self.query(&names[0], &find).await?;
            let mut found: Vec<_> = entries.iter().map(|entry| parse_entry(entry)).collect();
            let dead = self.find_dead(found.iter().flatten()).await?;
            for entry in &mut found {
                entry.take_if(|presence| dead.contains(&presence.node));
            }
            Ok(found)
        })
    }

    fn list<'a>(
        &'a self,
        org: OrgId,
        range: DeviceRange<'a>,
        limit: usize,
    ) -> BackendFuture<'a, Vec<(DeviceId, Presence)>> {
        self.timed(Command::Lookup, self.list_devices(org, range, limit))
    }

    fn count<'a>(&'a self, org: OrgId, range: DeviceRange<'a>) -> BackendFuture<'a, u64> {
        self.timed(Command::Lookup, async move {
            let ids = self.keys.ids(org);
            let (from, to) = lexical(range);
            let mut count = redis::cmd("ZLEXCOUNT");
            count.arg(&ids).arg(from).arg(to);
            self.query(&ids, &count).await
        })
    }

    fn services<'a>(
        &'a self,
        org: OrgId,
        presence: &'a Presence,
    ) -> BackendFuture<'a, Option<Bytes>> {
        Box::pin(async move {
            let Some(digest) = presence.digest else {
                return Ok(None);
            };
            // The second one is where a node of an earlier release stores it.
            let stores = [
                self.keys.registrations(org),
                self.keys.node_services(&presence.node),
            ];
            for store in stores {
                let get = Cmd::hget(&store, digest.to_string());
                let json: Option<Vec<u8>> = self.query(&store, &get).await?;
                if json.is_some() {
                    return Ok(json.map(Bytes::from));
                }
            }
            Ok(None)
        })
    }

    fn entries(&self) -> BackendFuture<'_, Vec<(DeviceKey, Epoch)>> {
        Box::pin(self.scan_entries(self.node.as_str()))
    }

    fn is_moving<'a>(&'a self, device: &'a DeviceKey) -> BackendFuture<'a, bool> {
        self.timed(Command::Lookup, async move {
            let name = self.keys.moving(device);
            self.query(&name, &Cmd::exists(&name)).await
        })
    }

    fn await_reply(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let nodes = self.keys.nodes();
            let _: bool = self.query(&nodes, &Cmd::exists(&nodes)).await?;
            Ok(())
        })
    }

    fn renew_lease(&self, accepts_devices: bool) -> BackendFuture<'_, Renewal> {
        self.timed(Command::Renew, async move {
            let commands = renew_lease(&self.keys, &self.node, &self.scripts, accepts_devices);
            let values = self.query_all(commands).await?;
            let renewed = values.into_iter().next().unwrap_or(Value::Nil);
            let (expired, dead, now_us, other_edges): (bool, Vec<String>, u64, usize) =
                redis::from_redis_value(renewed).map_err(RedisError::from)?;
            if expired {
                // This process was suspended, or Redis was emptied: other nodes may have removed
                // its entries.
                self.health.lease_expired();
            }
            let dead = dead.iter().map(|node| NodeId::from(node.as_str()));
            Ok(Renewal {
                now: Duration::from_micros(now_us),
                dead: dead.collect(),
                other_edges,
            })
        })
    }

    fn leases<'a>(&'a self, nodes: &'a [NodeId]) -> BackendFuture<'a, Vec<(NodeId, Duration)>> {
        self.timed(Command::Lookup, self.read_leases(nodes.to_vec()))
    }

    fn publish_status(&self, status: Bytes) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            let name = self.keys.node_status(&self.node);
            let mut set = redis::cmd("SET");
            set.arg(&name).arg(&status[..]).arg("PX").arg(LEASE_MS);
            self.query(&name, &set).await
        })
    }

    fn nodes(&self) -> BackendFuture<'_, Vec<(NodeId, Option<Bytes>)>> {
        Box::pin(async move {
            let nodes = self.keys.nodes();
            let named = Cmd::zrange(&nodes, 0, MAX_NODES - 1);
            let named: Vec<String> = self.query(&nodes, &named).await?;
            let named = named.iter().map(|node| NodeId::from(node.as_str()));
            let leases = self.read_leases(named.collect()).await?;
            let live: Vec<NodeId> = leases
                .into_iter()
                .filter(|(_, left)| !left.is_zero())
                .map(|(node, _)| node)
                .collect();
            let mut read = CommandGroup::default();
            for node in &live {
                let name = self.keys.node_status(node);
                read.add(&name, Cmd::get(&name));
            }
            let statuses = self.query_all(read).await?;
            let statuses: Vec<Option<Vec<u8>>> = statuses
                .into_iter()
                .map(redis::from_redis_value)
                .collect::<Result<_, _>>()
                .map_err(RedisError::from)?;
            let statuses = statuses.into_iter().map(|status| status.map(Bytes::from));
            Ok(live.into_iter().zip(statuses).collect())
        })
    }

    fn remove_dead<'a>(&'a self, node: &'a NodeId) -> BackendFuture<'a, Vec<(DeviceKey, Epoch)>> {
        Box::pin(async move {
            let mut removed = Vec::new();
            if !self.acquire_removal(node).await {
                return Ok(removed);
            }
            if let Err(error) = self.remove_entries(node, &mut removed).await {
                tracing::warn!(
                    %error,
                    node.id = %node,
                    "cannot remove a dead node's entries from the directory; retrying later"
                );
            } else {
                tracing::info!(
                    node.id = %node,
                    devices = removed.len(),
                    "removed a dead node's entries from the directory"
                );
            }
            Ok(removed)
        })
    }

    fn stats(&self) -> BackendFuture<'_, Stats> {
        Box::pin(self.read_stats())
    }
}

impl RedisClient {
    fn directory_keys(&self, org: OrgId) -> [String; 4] {
        [
            self.keys.directory(org),
            self.keys.ids(org),
            self.keys.orgs(Keys::part(org)),
            self.keys.registrations(org),
        ]
    }

    /// Appends the command and the channel with which a script publishes catalog events.
    fn add_catalog_channel(&self, script: &mut Cmd, org: OrgId) {
        let channel = self.keys.catalog_channel(Keys::part(org));
        script.arg(self.keys.pubsub.publish).arg(channel);
    }

    async fn upsert_entries(
        &self,
        entries: Vec<Entry>,
        max_bytes: u64,
    ) -> Result<Vec<Upserted>, BusError> {
        let mut commands = CommandGroup::default();
        for entry in &entries {
            let org = entry.device.org;
            let digest = entry
                .digest
                .map_or_else(|| "-".to_owned(), |digest| digest.to_string());
            let names = self.directory_keys(org);
            let mut upsert = scripts::call(&self.scripts.upsert, &names);
            upsert
                .arg(entry.device.device.as_str())
                .arg(self.node.as_str())
                .arg(org.to_string())
                .arg(entry.epoch.0)
                .arg(digest);
            self.add_catalog_channel(&mut upsert, org);
            let text = entry.services.as_deref().unwrap_or_default();
            upsert.arg(text).arg(max_bytes);
            commands.add(&names[0], upsert);
        }
        let values = self.query_all(commands).await?;
        let upserted: Vec<String> = values
            .into_iter()
            .map(redis::from_redis_value)
            .collect::<Result<_, _>>()
            .map_err(RedisError::from)?;
        let parse = |upserted: String| match upserted.as_str() {
            "missing" => Upserted::TextMissing,
            "full" => Upserted::Full,
            "new" => Upserted::Entered(None),
            other => match (other.strip_prefix("was "), other.parse()) {
                (Some(node), _) => Upserted::Entered(Some(NodeId::from(node))),
                (None, Ok(epoch)) => Upserted::Newer(Epoch(epoch)),
                (None, Err(_)) => Upserted::Updated,
            },
        };
        Ok(upserted.into_iter().map(parse).collect())
    }

    /// The key of the leases, where a script that reads entries can read them as well.
    fn readable_leases(&self) -> Option<String> {
        self.is_single().then(|| self.keys.nodes())
    }

    /// Which of the entries' nodes have no lease, unless the entries were read together with the
    /// leases.
    async fn find_dead(
        &self,
        entries: impl Iterator<Item = &Presence>,
    ) -> Result<HashSet<NodeId>, BusError> {
        let mut nodes: HashSet<NodeId> = HashSet::new();
        if !self.is_single() {
            nodes.extend(entries.map(|presence| presence.node.clone()));
        }
        if nodes.is_empty() {
            return Ok(nodes);
        }
        for (node, left) in self.read_leases(nodes.iter().cloned().collect()).await? {
            if !left.is_zero() {
                nodes.remove(&node);
            }
        }
        Ok(nodes)
    }

    async fn read_leases(&self, nodes: Vec<NodeId>) -> Result<Vec<(NodeId, Duration)>, BusError> {
        let names = [self.keys.nodes()];
        let mut read = scripts::call(&self.scripts.read_leases, &names);
        read.arg(LEASE_MS);
        for node in &nodes {
            read.arg(node.as_str());
        }
        let left: Vec<u64> = self.query(&names[0], &read).await?;
        let left = left.into_iter().map(Duration::from_millis);
        Ok(nodes.into_iter().zip(left).collect())
    }

    async fn list_devices(
        &self,
        org: OrgId,
        range: DeviceRange<'_>,
        limit: usize,
    ) -> Result<Vec<(DeviceId, Presence)>, BusError> {
        let mut names = vec![self.keys.directory(org), self.keys.ids(org)];
        names.extend(self.readable_leases());
        let (mut from, to) = lexical(range);
        let mut live = Vec::new();
        while live.len() < limit {
            let wanted = limit - live.len();
            let mut list = scripts::call(&self.scripts.list, &names);
            list.arg(LEASE_MS).arg(&from).arg(wanted).arg(&to);
            let found: Vec<String> = self.query(&names[0], &list).await?;
            let mut found = found.into_iter();
            let scanned: usize = found.next().and_then(|text| text.parse().ok()).unwrap_or(0);
            from = format!("({}", found.next().unwrap_or_default());
            let mut entries: Vec<(DeviceId, Presence)> = Vec::new();
            while let (Some(device), Some(entry)) = (found.next(), found.next()) {
                entries.extend(device.parse().ok().zip(parse_entry(&entry)));
            }
            let dead = self
                .find_dead(entries.iter().map(|(_, presence)| presence))
                .await?;
            entries.retain(|(_, presence)| !dead.contains(&presence.node));
            live.append(&mut entries);
            if scanned < wanted {
                break;
            }
        }
        Ok(live)
    }

    /// Whether this node is the one that removes the entries of a dead node: all nodes notice it, and
    /// the removal reads the whole directory. A full Redis stores no lock; then each node removes them.
    async fn acquire_removal(&self, dead: &NodeId) -> bool {
        let lock = self.keys.removal_lock(dead);
        let mut set = Cmd::set(&lock, self.node.as_str());
        set.arg("NX").arg("PX").arg(millis(REMOVAL_TIME));
        let acquired: Result<Option<String>, _> = self.query(&lock, &set).await;
        if matches!(acquired, Ok(None)) {
            return false;
        }
        let nodes = self.keys.nodes();
        let lease = Cmd::zscore(&nodes, dead.as_str());
        let lease: Result<Option<f64>, _> = self.query(&nodes, &lease).await;
        // Without one, another node has just removed them.
        !matches!(lease, Ok(None))
    }

    async fn remove_entries(
        &self,
        node: &NodeId,
        removed: &mut Vec<(DeviceKey, Epoch)>,
    ) -> Result<(), BusError> {
        let entries = self.scan_entries(node.as_str()).await?;
        for chunk in entries.chunks(SCAN_BATCH) {
            for entries in chunk.chunk_by(|(one, _), (other, _)| one.org == other.org) {
                removed.extend(self.remove_org_entries(node.as_str(), entries).await?);
            }
        }
        self.delete_node(node).await?;
        // After the lease, which another node reads once it has the lock: servers of a cluster run commands
        // in any order. A lock that stays expires.
        let lock = self.keys.removal_lock(node);
        let _ = self.query::<()>(&lock, &Cmd::del(&lock)).await;
        Ok(())
    }

    /// Deletes a node's lease, and the services that a node of an earlier release stored.
    pub(super) async fn delete_node(&self, node: &NodeId) -> Result<(), BusError> {
        let (nodes, services) = (self.keys.nodes(), self.keys.node_services(node));
        let mut delete = CommandGroup::default();
        delete.add(&nodes, Cmd::zrem(&nodes, node.as_str()));
        delete.add(&services, Cmd::del(&services));
        self.query_all(delete).await.map(|_| ())
    }

    /// Every entry under a node. Scans the live devices of all organisations: it is rare, and
    /// saves every claim a second index.
    async fn scan_entries(&self, node: &str) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let mut entries = Vec::new();
        for org in self.list_orgs().await? {
            let name = self.keys.directory(org);
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("HSCAN");
                scan.arg(&name).arg(cursor).arg("COUNT").arg(SCAN_BATCH);
                let (next, found): (u64, Vec<(String, String)>) = self.query(&name, &scan).await?;
                entries.extend(found.iter().filter_map(|(device, entry)| {
                    let presence = parse_entry(entry)?;
                    let device = device.parse().ok()?;
                    let is_of_node = presence.node.as_str() == node;
                    is_of_node.then_some((DeviceKey { org, device }, presence.epoch))
                }));
                cursor = next;
                if cursor == 0 {
                    break;
                }
            }
        }
        Ok(entries)
    }

    /// Removes entries of one organisation that are still the node's.
    async fn remove_org_entries(
        &self,
        node: &str,
        entries: &[(DeviceKey, Epoch)],
    ) -> Result<Vec<(DeviceKey, Epoch)>, BusError> {
        let Some((DeviceKey { org, .. }, _)) = entries.first() else {
            return Ok(Vec::new());
        };
        let names = self.directory_keys(*org);
        let mut remove = scripts::call(&self.scripts.remove_dead, &names);
        remove.arg(org.to_string()).arg(node);
        self.add_catalog_channel(&mut remove, *org);
        for (device, _) in entries {
            remove.arg(device.device.as_str());
        }
        let epochs: Vec<String> = self.query(&names[0], &remove).await?;
        let pairs = entries.iter().zip(epochs);
        Ok(pairs
            .filter_map(|((device, _), epoch)| Some((device.clone(), Epoch(epoch.parse().ok()?))))
            .collect())
    }
}

/// Renews a node's lease.
pub(super) fn renew_lease(
    keys: &Keys,
    node: &NodeId,
    scripts: &Scripts,
    accepts_devices: bool,
) -> CommandGroup {
    let names = [keys.nodes(), keys.edges()];
    let mut renew = scripts::call(&scripts.renew_lease, &names);
    renew.arg(LEASE_MS).arg(node.as_str());
    renew.arg(keys.pubsub.publish).arg(keys.lagged_channel());
    renew.arg(u8::from(accepts_devices));
    let mut commands = CommandGroup::default();
    commands.add(&names[0], renew);
    commands
}
