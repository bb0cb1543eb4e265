//! Stores on two volumes, of which one fails in a way that takes it out of service.

use super::*;

/// A store on two volumes, of which one may fail.
fn on_two_volumes(world: &SimWorld) -> Result<Driver, String> {
    let mut config = tiny_config(1);
    let mut second = config.volumes[0].clone();
    second.path = "sim-1".into();
    config.volumes.push(second);
    config.volume_errors_max = 4;
    let model = Model::new(Demand::Fresh, config.durability);
    let mut driver = driver_on(world, &config, model);
    driver.tolerant = true;
    driver.open()?;
    Ok(driver)
}

/// Keys of the objects that it creates.
const KEYS: usize = 60;

/// Creates 300 objects, each key anew several times, and syncs.
fn create(driver: &mut Driver, from: usize) -> Result<(), String> {
    for i in from..from + 300 {
        let (key, group) = (i % KEYS, i as u64 % 5);
        let object = NewObject { key, group, length: 5_000, metadata: 0, expires_in: None };
        driver.apply(i as u64 + 1, &Op::Create(object))?;
    }
    driver.apply(0, &Op::Sync)
}

fn without_the_second(driver: &Driver) -> Result<(), String> {
    let out: Vec<bool> = driver.store().info().volumes.iter().map(|v| v.in_service).collect();
    if out == [true, false] { Ok(()) } else { Err(format!("volumes in service: {out:?}")) }
}

#[test]
fn one_volume_of_two_may_vanish_and_the_rest_goes_on() {
    watched(|| {
        let disks = [SimDisk::blank(8 << 20), SimDisk::blank(8 << 20)];
        let world = SimWorld::start(&disks, &SimOptions::new(3), Arc::new(SimClock::new()));
        let mut driver = on_two_volumes(&world)?;
        create(&mut driver, 0)?;
        let rule = Rule::new(OpKind::ALL, When::Always, Effect::Vanish);
        world.sims()[1].set_faults(FaultPlan::new(vec![rule]));
        driver.apply(0, &Op::DropMemory)?;
        driver.verify(true)?;
        create(&mut driver, 300)?;
        create(&mut driver, 600)?;
        driver.apply(0, &Op::DropMemory)?;
        driver.verify(true)?;
        let left = present(&driver);
        if left == 0 {
            return Err("nothing is served any more although one volume is sound".into());
        }
        without_the_second(&driver)
    });
}

/// While it is in service, no sync of the store holds, nor is any checkpoint complete.
#[test]
fn a_volume_whose_syncs_fail_goes_and_the_next_sync_survives_a_loss_of_power() {
    watched(|| {
        let disks = [SimDisk::blank(8 << 20), SimDisk::blank(8 << 20)];
        let clock = Arc::new(SimClock::new());
        let world = SimWorld::start(&disks, &SimOptions::new(3), Arc::clone(&clock));
        let mut driver = on_two_volumes(&world)?;
        create(&mut driver, 0)?;
        let rule = Rule::new(&[OpKind::Sync], When::Always, Effect::Eio);
        world.sims()[1].set_faults(FaultPlan::new(vec![rule]));
        for round in 1..=4 {
            create(&mut driver, 300 * round)?;
        }
        without_the_second(&driver)?;
        create(&mut driver, 1_500)?;
        driver.store().sync().map_err(|error| error.to_string())?;
        driver.store().checkpoint().map_err(|error| error.to_string())?;
        let model = driver.model.after_crash(world.now(), CrashKind::Power);
        let images: Vec<_> = (0..4).map(|seed| world.crash(CrashKind::Power, seed)).collect();
        driver.abandon();
        for disks in images {
            let world = SimWorld::start(&disks, &SimOptions::new(3), Arc::clone(&clock));
            let mut driver = on_two_volumes(&world)?;
            driver.model = model.clone();
            driver.verify_recovered()?;
            if present(&driver) != KEYS {
                return Err(format!("{} of {KEYS} keys are left", present(&driver)));
            }
            driver.close()?;
        }
        Ok(())
    });
}
