//! A store that cannot be written, from the start or later: the proxy passes on, says why nothing is
//! stored, and stores once it can.

mod support;

use std::sync::Arc;

use damelo::{ByteSize, Config, GroupId, Store};
use damelo_http_proxy::{OriginTarget, ask_admin};
use damelo_store_sim::{
    Effect, FaultPlan, OpKind, Rule, SimClock, SimDisk, SimOptions, SimWorld, When,
};
use support::{Origin, Proxy, ask_at, eventually, reply};

/// A store on one simulated disk, which is out of service after so many errors in a row.
fn store(volume_errors_max: u32) -> (SimWorld, Store) {
    let options = SimOptions { history: false, ..SimOptions::new(1) };
    let world = SimWorld::start(&[SimDisk::blank(64 << 20)], &options, Arc::new(SimClock::new()));
    let mut config = Config::new("sim", ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.volume_errors_max = volume_errors_max;
    let store = Store::open_on(config, world.devices(), world.clock()).expect("a store");
    store.wait_recovered();
    (world, store)
}

fn writes_fail(world: &SimWorld) {
    let failing = Rule::new(OpKind::WRITES, When::Always, Effect::Eio);
    world.set_faults(&FaultPlan::new(vec![failing]));
}

#[test]
fn a_store_that_cannot_be_written_leaves_a_proxy_that_passes_on() {
    // It comes back once it can be written.
    let (world, store) = store(u32::MAX);
    writes_fail(&world);

    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"));
    let to = OriginTarget::Url(format!("http://{}", origin.address));
    let proxy = Proxy::start_on(store, to, |_| {});
    let admin = proxy.info.admin.expect("an admin listener");
    let ready = || ask_at(admin, "GET", "/readyz", "", b"");
    eventually("it is ready", || ready().status() == 200);
    assert!(ready().text().starts_with("ready, but nothing is stored: "), "{}", ready().text());
    for _ in 0..2 {
        let answer = proxy.get("/");
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
        assert!(answer.cache().contains("fwd=uri-miss"), "{answer:?}");
        assert!(answer.cache().contains("detail=store"), "{answer:?}");
    }
    let purge = || ask_admin(admin, "/purge", None, Some("{\"all\": true}"));
    let refused = purge().expect_err("nothing can be made durable").to_string();
    assert!(refused.contains("could not be made durable"), "{refused}");

    world.set_faults(&FaultPlan::none());
    eventually("it stores again", || proxy.get("/").cache().contains("; hit"));
    assert_eq!(ready().text(), "ready\n");
    purge().expect("a purge");
}

#[test]
fn a_disk_that_fails_later_leaves_a_proxy_that_says_so() {
    let (world, store) = store(1);
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"));
    let to = OriginTarget::Url(format!("http://{}", origin.address));
    let proxy = Proxy::start_on(store.clone(), to, |_| {});
    let admin = proxy.info.admin.expect("an admin listener");
    let ready = || ask_at(admin, "GET", "/readyz", "", b"");
    eventually("it is ready", || ready().text() == "ready\n");
    assert_eq!(proxy.get("/").status(), 200);

    writes_fail(&world);
    store.create(b"another", GroupId::of("x"), b"value").wait().expect("it waits to be written");
    store.sync().expect_err("what was just stored cannot be written");
    assert_eq!(ready().status(), 200, "the origin is reached through it");
    let told = ready().text();
    assert!(told.starts_with("ready, but nothing is stored: 1 of the store's 1 volumes"), "{told}");
    assert_eq!(proxy.get("/other").text(), "hello");
}
