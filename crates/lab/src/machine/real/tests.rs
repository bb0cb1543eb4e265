//! Designs on the disks of the machine that runs the tests.

use super::*;
use crate::design::{DesignInputs, DesignOptions, find};
use crate::machine::{Machine, MachineConfig, RunOptions, run};
use crate::request::Request;

fn requests() -> Vec<Request> {
    let mut rng = fastrand::Rng::with_seed(4);
    let one = |i: u64| {
        let key = rng.u64(0..60);
        let op = if rng.u8(0..20) == 0 { Op::Delete } else { Op::Read };
        let size_bytes = 500 + key * 300;
        Request { time_us: i * 1_000, client: 0, key, size_bytes, host: (key % 7) as u32, op }
    };
    (0..400).map(one).collect()
}

/// The same design over the same requests hits as often on real disks as on modelled ones, and
/// leaves nothing behind.
#[test]
fn designs_run_on_real_disks_as_on_modelled_ones() {
    let requests = requests();
    let options = DesignOptions {
        cache_bytes: 8 << 20,
        memory_bytes: 256 << 10,
        page_bytes: 32 << 10,
        ..DesignOptions::default().without_fetching()
    };
    let names = Catalogue::new();
    let config = MachineConfig::new(crate::disk::Drive::named("atlas-10k").expect("known"));
    // One of each kind: trees of directories take a while to make and to remove.
    for name in ["cern", "squidml", "mmap-fbc", "cfs", "damelo", "ucfs", "hades", "store"] {
        let entry = find(name).expect("registered");
        let inputs =
            DesignInputs { options: &options, requests: (&requests).into(), drive: &config.drive };
        let home = tempfile::tempdir().expect("a directory");
        let place = RealPlace::of(home.path()).expect("a directory");
        let real_config = RealConfig { place, size_bytes: 16 << 20, flush: false };
        let mut machine = RealMachine::new(real_config).expect("makes its directory");
        let mut design = machine.design(entry, &inputs).expect(entry.name);
        let real = run_real(&mut *design, &mut machine, &requests, &names).expect(entry.name);
        // The store's own files lie in the machine's directory.
        drop(design);
        drop(machine);
        assert_eq!(fs::read_dir(home.path()).expect("readable").count(), 0, "{}", entry.name);
        let mut design = (entry.make)(&inputs);
        let mut machine = Machine::new(&config);
        let modelled = run(&mut *design, &mut machine, &requests, &names, RunOptions::default())
            .expect(entry.name);
        assert_eq!(real.hits, modelled.hits, "{}", entry.name);
        assert_eq!(real.requests, modelled.requests);
        // The store does its own I/O, which comes of no actions.
        let pages = real.facts.iter().find(|(fact, _)| *fact == "pages_written");
        let written = pages.map_or(real.actions.1, |(_, pages)| *pages);
        assert!(written > 0, "{} wrote", entry.name);
        assert_eq!(real.actions == (0, 0), entry.name == "store", "{}", entry.name);
    }
}

#[test]
fn what_cannot_be_made_is_an_error_with_its_path() {
    let place = RealPlace::Directory("/nowhere/at/all".into());
    let config = RealConfig { place, size_bytes: 1, flush: false };
    let error = RealMachine::new(config).err().expect("no such directory");
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
    for (path, why) in [("/nowhere/at/all", "No such file"), ("/dev/null", "it is no directory")] {
        let error = RealPlace::of(Path::new(path)).expect_err(path).to_string();
        assert!(error.contains(path) && error.contains(why), "{error}");
    }
}

/// The store as it ships needs a place of at least its least size, and says so with the path.
#[test]
fn a_store_that_cannot_be_opened_is_an_error_with_its_path() {
    let place = RealPlace::Device("/nowhere/at/all".into());
    let config = RealConfig { place, size_bytes: 1 << 20, flush: false };
    let machine = RealMachine::new(config).expect("makes nothing");
    let (options, requests) = (DesignOptions::default(), requests());
    let drive = crate::disk::Drive::named("atlas-10k").expect("known");
    let inputs = DesignInputs { options: &options, requests: (&requests).into(), drive: &drive };
    let error = machine.design(find("store").expect("registered"), &inputs).err();
    let error = error.expect("no such directory").to_string();
    assert!(error.starts_with("cannot open a store on /nowhere/at/all: "), "{error}");
}

/// What a run before left on the device is nothing to the next.
#[test]
fn a_store_begins_empty_on_a_device_that_had_one() {
    let home = tempfile::tempdir().expect("a directory");
    let device = home.path().join("device");
    fs::write(&device, "").expect("written");
    let options = DesignOptions { cache_bytes: 16 << 20, ..DesignOptions::default() };
    let (requests, names) = (requests(), Catalogue::new());
    let drive = crate::disk::Drive::named("atlas-10k").expect("known");
    let inputs = DesignInputs { options: &options, requests: (&requests).into(), drive: &drive };
    let run = || {
        let place = RealPlace::of(&device).expect("a file");
        let config = RealConfig { place, size_bytes: 16 << 20, flush: false };
        let mut machine = RealMachine::new(config).expect("makes nothing");
        let mut design =
            machine.design(find("store").expect("registered"), &inputs).expect("a store");
        run_real(&mut *design, &mut machine, &requests, &names).expect("runs").hits
    };
    let first = run();
    assert!(first < 400, "it begins with misses");
    assert_eq!(run(), first);
}

/// On a device run those designs that touch nothing but blocks, and the registry says which these
/// are.
#[test]
fn designs_with_files_are_refused_on_a_device() {
    let home = tempfile::tempdir().expect("a directory");
    let device = home.path().join("device");
    fs::write(&device, "").expect("written");
    let place = RealPlace::of(&device).expect("a file");
    let options = DesignOptions {
        cache_bytes: 8 << 20,
        memory_bytes: 4 << 20,
        real: true,
        ..DesignOptions::default().without_fetching()
    };
    let (requests, names) = (requests(), Catalogue::new());
    let drive = crate::disk::Drive::named("atlas-10k").expect("known");
    let inputs = DesignInputs { options: &options, requests: (&requests).into(), drive: &drive };
    for entry in &crate::design::REGISTRY {
        let config = RealConfig { place: place.clone(), size_bytes: 8 << 20, flush: true };
        let mut machine = RealMachine::new(config).expect("makes nothing");
        let refused = machine.design(entry, &inputs).err().map(|error| error.to_string());
        assert_eq!(refused.is_none(), entry.on_blocks, "{}", entry.name);
        let needs = format!("{} needs a directory", entry.name);
        assert!(refused.is_none_or(|why| why.starts_with(&needs)), "{}", entry.name);
        // Told of no place, it does what it does: the machine comes to the same.
        let mut design = match entry.on_blocks {
            true => machine.design(entry, &inputs).expect("made above"),
            false => (entry.make)(&inputs),
        };
        let run = run_real(&mut *design, &mut machine, &requests, &names);
        assert_eq!(run.is_ok(), entry.on_blocks, "{}: {run:?}", entry.name);
    }
    let left = fs::read_dir(home.path()).expect("readable").count();
    assert_eq!(left, 1, "the device and nothing else");
}
