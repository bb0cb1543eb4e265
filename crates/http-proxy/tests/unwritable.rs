//! A store that cannot be written, from the start or later: the proxy passes on, says why nothing
//! is stored, and stores once it can. It says, too, which of several volumes are in trouble.

mod support;
#[path = "../../store/tests/tapped/mod.rs"]
mod tapped;

use std::future::Future as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use damelo::device::{Device, Io, IoOp};
use damelo::{ByteSize, Config, GroupId, Store};
use damelo_http_proxy::{OriginTarget, ask_admin};
use damelo_store_sim::{
    Effect, FaultPlan, OpKind, Rule, SimClock, SimDisk, SimOptions, SimWorld, When,
};
use support::{Message, Origin, Proxy, ask_at, eventually, reply};
use tapped::{Tap, Tapped};

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

/// A proxy before an origin, that is ready.
fn ready_on(store: &Store) -> (Origin, Proxy) {
    let origin = Origin::start(|_| reply(200, "Cache-Control: max-age=60", "hello"));
    let to = OriginTarget::Url(format!("http://{}", origin.address));
    let proxy = Proxy::start_on(store.clone(), to, |_| {});
    eventually("it is ready", || readiness(&proxy).text() == "ready\n");
    (origin, proxy)
}

fn readiness(proxy: &Proxy) -> Message {
    ask_at(proxy.info.admin.expect("an admin listener"), "GET", "/readyz", "", b"")
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
    let (_origin, proxy) = ready_on(&store);
    let ready = || readiness(&proxy);
    assert_eq!(proxy.get("/").status(), 200);

    writes_fail(&world);
    store.create(b"another", GroupId::of("x"), b"value").wait().expect("it waits to be written");
    store.sync().expect_err("what was just stored cannot be written");
    assert_eq!(ready().status(), 200, "the origin is reached through it");
    let told = ready().text();
    assert!(told.starts_with("ready, but nothing is stored: 1 of the store's 1 volumes"), "{told}");
    assert_eq!(proxy.get("/other").text(), "hello");
}

/// A disk whose reads wait while it hangs.
#[derive(Clone, Default)]
struct Hangs {
    now: Arc<AtomicBool>,
    waiting: Arc<Mutex<Vec<Io>>>,
}

impl Tap for Hangs {
    fn submit(&self, disk: &dyn Device, io: Io) {
        match io.op == IoOp::Read && self.now.load(Ordering::SeqCst) {
            true => self.waiting.lock().expect("no panic").push(io),
            false => disk.submit(io),
        }
    }
}

#[test]
fn volumes_in_trouble_are_named_to_who_asks_whether_it_is_ready() {
    let options = SimOptions { history: false, ..SimOptions::new(1) };
    let clock = Arc::new(SimClock::new());
    let blank = || SimDisk::blank(64 << 20);
    let good = SimWorld::start(&[blank(), blank()], &options, clock.clone());
    let failing = SimWorld::start(&[blank()], &options, clock.clone());
    let hangs = Hangs::default();
    let mut devices = good.devices();
    let disk = devices.pop().expect("the second");
    devices.push(Arc::new(Tapped { disk: disk.clone(), tap: hangs.clone() }));
    devices.extend(failing.devices());
    let mut config = Config::new("sim", ByteSize::new(64 << 20));
    config.memory = ByteSize::new(8 << 20);
    config.volume_errors_max = 1;
    let store = Store::open_on(config, devices, good.clock()).expect("a store");
    store.wait_recovered();
    let paths: Vec<String> =
        store.info().volumes.iter().map(|volume| volume.path.display().to_string()).collect();

    let (_origin, proxy) = ready_on(&store);
    let ready = || readiness(&proxy);

    let keys: Vec<String> = (0..64).map(|number| number.to_string()).collect();
    let fill = |bytes: usize| {
        for key in &keys {
            let created = store.create(key.as_bytes(), GroupId::of(key), &vec![7; bytes]).wait();
            created.expect("it waits to be written");
        }
        let _ = store.sync();
    };
    fill(100 << 10);
    store.drop_memory();
    hangs.now.store(true, Ordering::SeqCst);
    let mut context = Context::from_waker(Waker::noop());
    let mut reads: Vec<_> = keys.iter().map(|key| Box::pin(store.read(key.as_bytes()))).collect();
    for read in &mut reads {
        let _ = read.as_mut().poll(&mut context);
    }
    eventually("it hangs", || !hangs.waiting.lock().expect("no panic").is_empty());
    clock.advance(Duration::from_secs(6));
    let (status, told) = (ready().status(), ready().text());
    let silent = format!("ready, but {} has answered no read for 6 s\n", paths[1]);
    assert_eq!((status, told), (200, silent));

    hangs.now.store(false, Ordering::SeqCst);
    let waiting = std::mem::take(&mut *hangs.waiting.lock().expect("no panic"));
    waiting.into_iter().for_each(|io| disk.submit(io));
    drop(reads);
    eventually("it answers again", || ready().text() == "ready\n");
    writes_fail(&failing);
    fill(90 << 10);
    let told = ready().text();
    let out = format!("ready, but 1 of the store's 3 volumes failed: {}: out", paths[2]);
    assert!(told.starts_with(&out), "{told}");
    assert_eq!(ready().status(), 200);
}
