//! Tests of budgets: bounds, turns of owners, cancellation, and metrics.

use std::{net::IpAddr, time::Duration};

use futures_util::FutureExt as _;
use prometheus::Registry;
use proptest::prelude::*;
use tokio::time::Instant;
use uuid::Uuid;

use super::*;

fn org(number: u128) -> Owner {
    Owner::Org(Uuid::from_u128(number))
}

fn budget(capacity: usize, kind: Kind) -> Budget {
    let budgets = Budgets::new(&Registry::new()).unwrap();
    budgets.slots("tested", capacity, kind)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

#[test]
fn held_budget_leaves_room_for_other_owners() {
    let budget = budget(8, Kind::quarter_of(8));
    let first = budget.try_acquire(org(1), 2).unwrap();
    let refused = budget.try_acquire(org(1), 1).unwrap_err();
    assert_eq!((refused.budget, refused.scope), ("tested", Scope::Share));
    let others: Vec<_> = (2..5)
        .map(|number| budget.try_acquire(org(number), 2).unwrap())
        .collect();
    let refused = budget.try_acquire(org(5), 1).unwrap_err();
    assert_eq!(refused.scope, Scope::Total);
    drop(first);
    assert_eq!(budget.try_acquire(org(5), 1).unwrap().amount(), 1);
    drop(others);
    assert_eq!(budget.used(), 0);
    assert_eq!(budget.shared.state.lock().owners().count(), 0);
}

#[tokio::test]
async fn process_itself_has_no_share_and_takes_turns_with_others() {
    let budget = budget(2, Kind::Held { share: 1 });
    let all = budget.try_acquire(Owner::System, 2).unwrap();
    assert_eq!(budget.holders(), [(Owner::System, 2)]);
    let mut later = Box::pin(budget.acquire(Owner::System, 2, far()));
    assert!((&mut later).now_or_never().is_none());
    let mut other = Box::pin(budget.acquire(org(1), 1, far()));
    assert!((&mut other).now_or_never().is_none());
    drop(all);
    drop(later.now_or_never().unwrap().unwrap());
    assert!(other.now_or_never().unwrap().is_ok());
}

#[test]
fn share_is_at_least_one() {
    let budget = budget(1, Kind::quarter_of(1));
    assert!(budget.try_acquire(org(1), 1).is_ok());
}

#[test]
fn permit_grows_shrinks_and_moves() {
    let budget = budget(8, Kind::Held { share: 4 });
    let network = Owner::network("192.0.2.1".parse().unwrap());
    let mut permit = budget.try_acquire(network, 1).unwrap();
    permit.try_grow(3).unwrap();
    assert_eq!(permit.try_grow(1).unwrap_err().scope, Scope::Share);
    assert_eq!(permit.amount(), 4);
    let other = budget.try_acquire(org(1), 1).unwrap();
    assert_eq!(permit.transfer(org(1)).unwrap_err().scope, Scope::Share);
    permit.shrink(1);
    permit.transfer(org(1)).unwrap();
    assert!(budget.try_acquire(org(1), 1).is_err());
    assert!(budget.try_acquire(network, 4).is_ok());
    drop((permit, other));
    assert_eq!(budget.used(), 0);
}

#[test]
fn networks_are_the_unit_of_unauthenticated_peers() {
    let of = |text: &str| Owner::network(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::"));
    assert_ne!(of("2001:db8:1:2::"), of("2001:db8:1:3::"));
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_eq!(of("2001:db8::1").to_string(), "2001:db8::/64");
}

#[tokio::test]
async fn waiting_owners_take_turns() {
    let budget = budget(2, Kind::Brief);
    let all = budget.try_acquire(org(1), 2).unwrap();
    let mut greedy: Vec<_> = (0..3)
        .map(|_| Box::pin(budget.acquire(org(1), 2, far())))
        .collect();
    for waiter in &mut greedy {
        assert!(waiter.now_or_never().is_none());
    }
    let mut other = Box::pin(budget.acquire(org(2), 2, far()));
    assert!((&mut other).now_or_never().is_none());
    assert!(budget.try_acquire(org(3), 1).is_err());
    drop(all);
    let first = (&mut greedy[0]).now_or_never().unwrap().unwrap();
    drop(first);
    let second = (&mut other).now_or_never().unwrap().unwrap();
    assert!((&mut greedy[1]).now_or_never().is_none());
    drop(second);
    assert!((&mut greedy[1]).now_or_never().is_some());
}

#[tokio::test]
async fn owner_that_passes_its_turn_is_next_after_the_other_owners() {
    let budget = budget(1, Kind::Brief);
    let acquire = |number| Box::pin(budget.acquire(org(number), 1, far()));
    let permit = budget.try_acquire(org(1), 1).unwrap();
    let mut later = acquire(1);
    assert!((&mut later).now_or_never().is_none());
    assert!(!permit.is_awaited(), "only its own owner waits");
    let mut others = [acquire(2), acquire(3)];
    for waiter in &mut others {
        assert!(waiter.now_or_never().is_none());
    }
    assert!(permit.is_awaited());
    let mut passed = Box::pin(permit.pass_turn(far()));
    assert!((&mut passed).now_or_never().is_none());
    for waiter in &mut others {
        assert!((&mut passed).now_or_never().is_none());
        drop(waiter.now_or_never().unwrap().unwrap());
    }
    let permit = passed.now_or_never().unwrap().unwrap();
    assert!((&mut later).now_or_never().is_none());
    // Without other owners, the turn returns at once.
    let permit = permit.pass_turn(far()).now_or_never().unwrap().unwrap();
    drop(permit);
    assert!(later.now_or_never().is_some());
    assert_eq!(budget.used(), 0);
}

#[tokio::test]
async fn owner_at_its_share_is_passed_over() {
    let budget = budget(4, Kind::Held { share: 2 });
    let held = budget.try_acquire(org(1), 2).unwrap();
    let mut greedy = Box::pin(budget.acquire(org(1), 1, far()));
    assert!((&mut greedy).now_or_never().is_none());
    let other = budget.acquire(org(2), 2, far()).now_or_never();
    assert!(other.unwrap().is_ok());
    drop(held);
    assert!(greedy.now_or_never().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn waiter_that_leaves_makes_room_for_the_next_one() {
    let budget = budget(4, Kind::Brief);
    let held = budget.try_acquire(org(1), 2).unwrap();
    let soon = Instant::now() + Duration::from_secs(1);
    let mut large = Box::pin(budget.acquire(org(2), 4, soon));
    assert!((&mut large).now_or_never().is_none());
    let mut small = Box::pin(budget.acquire(org(3), 2, far()));
    assert!((&mut small).now_or_never().is_none());
    assert_eq!(large.await.unwrap_err().scope, Scope::Total);
    assert!(small.now_or_never().unwrap().is_ok());
    // An amount that never fits does not wait.
    let too_large = budget.acquire(org(2), 5, far()).now_or_never();
    assert_eq!(too_large.unwrap().unwrap_err().scope, Scope::Share);
    drop(held);
    assert_eq!(budget.used(), 0);
    assert_eq!(budget.shared.state.lock().waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn refusal_of_a_waiter_names_the_bound_it_waited_for() {
    let registry = Registry::new();
    let budgets = Budgets::new(&registry).unwrap();
    let budget = budgets.slots("tested", 4, Kind::Held { share: 2 });
    let soon = || Instant::now() + Duration::from_secs(1);
    let mut own = budget.try_acquire(org(1), 2).unwrap();
    let refused = budget.acquire(org(1), 1, soon()).await.unwrap_err();
    assert_eq!(refused.scope, Scope::Share);
    let other = budget.try_acquire(org(2), 2).unwrap();
    let refused = budget.acquire(org(1), 1, soon()).await.unwrap_err();
    assert_eq!(
        refused.scope,
        Scope::Share,
        "its share as well as the total"
    );
    own.shrink(1);
    let third = budget.try_acquire(org(3), 1).unwrap();
    let refused = budget.acquire(org(1), 1, soon()).await.unwrap_err();
    assert_eq!(refused.scope, Scope::Total);
    drop((own, other, third));
    let text = prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    for line in [
        "switchboard_budget_refused_total{budget=\"tested\",scope=\"share\"} 2",
        "switchboard_budget_refused_total{budget=\"tested\",scope=\"total\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert_eq!(budget.shared.state.lock().waiting(), 0);
}

#[tokio::test]
async fn permit_that_was_granted_to_a_dropped_waiter_is_returned() {
    let budget = budget(1, Kind::Brief);
    let held = budget.try_acquire(org(1), 1).unwrap();
    let mut waiter = Box::pin(budget.acquire(org(2), 1, far()));
    assert!((&mut waiter).now_or_never().is_none());
    drop(held);
    assert_eq!(budget.used(), 1);
    drop(waiter);
    assert_eq!(budget.used(), 0);
}

#[test]
fn metrics_and_report_show_each_budget() {
    let registry = Registry::new();
    let budgets = Budgets::new(&registry).unwrap();
    let budget = budgets.slots("tested", 8, Kind::Held { share: 4 });
    let _same = budgets.slots("tested", 9, Kind::Brief);
    let _permits = [
        budget.try_acquire(org(1), 1).unwrap(),
        budget.try_acquire(org(2), 3).unwrap(),
    ];
    assert!(budget.try_acquire(org(2), 2).is_err());
    budgets.reserve("cache", 100);
    let text = prometheus::TextEncoder::new()
        .encode_to_string(&registry.gather())
        .unwrap();
    for line in [
        "switchboard_memory_reserved_bytes{use=\"cache\"} 100",
        "switchboard_budget_used{budget=\"tested\"} 4",
        "switchboard_budget_capacity{budget=\"tested\"} 8",
        "switchboard_budget_refused_total{budget=\"tested\",scope=\"share\"} 1",
        "switchboard_budget_refused_total{budget=\"tested\",scope=\"total\"} 0",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let report = serde_json::to_value(budgets.report()).unwrap();
    assert_eq!(
        report,
        serde_json::json!([{
            "budget": "tested", "unit": "slots", "capacity": 8, "share": 4, "used": 4, "waiting": 0,
            "owners": [
                {"owner": "org_00000000000000000000000000000002", "held": 3},
                {"owner": "org_00000000000000000000000000000001", "held": 1},
            ],
        }])
    );
}

/// One step of a random schedule.
#[derive(Debug, Clone)]
enum Step {
    Try(u128, usize),
    Wait(u128, usize),
    Poll(usize),
    DropPermit(usize),
    DropWaiter(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1..=OWNERS as u128, 1..6_usize).prop_map(|(owner, amount)| Step::Try(owner, amount)),
        (1..=OWNERS as u128, 1..6_usize).prop_map(|(owner, amount)| Step::Wait(owner, amount)),
        any::<usize>().prop_map(Step::Poll),
        any::<usize>().prop_map(Step::DropPermit),
        any::<usize>().prop_map(Step::DropWaiter),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Owners of a random schedule.
const OWNERS: usize = 4;

proptest! {
    /// Under any schedule the bounds hold, owners take turns, every waiter is served in the end, and
    /// nothing is left.
    #[test]
    fn bounds_hold_under_any_schedule(steps in steps(), brief: bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let _context = runtime.enter();
        let (capacity, share) = (10, if brief { 10 } else { 6 });
        let kind = if brief { Kind::Brief } else { Kind::Held { share } };
        let budget = budget(capacity, kind);
        let (mut permits, mut waiters) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Try(owner, amount) => permits.extend(budget.try_acquire(org(owner), amount)),
                Step::Wait(owner, amount) => {
                    let mut waiter = Box::pin(budget.acquire(org(owner), amount, far()));
                    match (&mut waiter).now_or_never() {
                        Some(granted) => permits.push(granted.unwrap()),
                        None => waiters.push((org(owner), waiter)),
                    }
                }
                Step::Poll(index) if !waiters.is_empty() => {
                    let index = index % waiters.len();
                    if let Some(granted) = (&mut waiters[index].1).now_or_never() {
                        permits.push(granted.unwrap());
                        drop(waiters.swap_remove(index));
                    }
                }
                Step::DropPermit(index) if !permits.is_empty() => {
                    drop(permits.swap_remove(index % permits.len()));
                }
                Step::DropWaiter(index) if !waiters.is_empty() => {
                    drop(waiters.swap_remove(index % waiters.len()));
                }
                Step::Poll(_) | Step::DropPermit(_) | Step::DropWaiter(_) => {}
            }
            let state = budget.shared.state.lock();
            prop_assert!(state.used() <= capacity);
            prop_assert_eq!(state.owners().map(|(_, held)| held).sum::<usize>(), state.used());
            prop_assert!(state.owners().all(|(_, held)| 0 < held && held <= share));
        }
        // Each amount is returned, and its grants are counted: an owner that waits and holds nothing
        // is served within as many grants as there are owners.
        let mut grants_of_others = [0; OWNERS];
        let mut is_first = true;
        while !waiters.is_empty() {
            if !is_first {
                prop_assert!(!permits.is_empty(), "no waiter was served");
                drop(permits.remove(0));
            }
            let before = permits.len();
            waiters.retain_mut(|(_, waiter)| match waiter.now_or_never() {
                Some(granted) => {
                    permits.push(granted.unwrap());
                    false
                }
                None => true,
            });
            let granted = permits.len() - before;
            for (owner, grants) in (1..).map(org).zip(&mut grants_of_others) {
                let holds = permits.iter().any(|permit| permit.owner == owner);
                let waits = waiters.iter().any(|(waiting, _)| *waiting == owner);
                // The first round polls what was granted before.
                *grants = if holds || !waits || is_first { 0 } else { *grants + granted };
                prop_assert!(*grants < OWNERS, "{owner} was not served within {grants} grants");
            }
            is_first = false;
        }
        permits.clear();
        prop_assert_eq!(budget.used(), 0);
        prop_assert_eq!(budget.shared.state.lock().waiting(), 0);
    }
}
