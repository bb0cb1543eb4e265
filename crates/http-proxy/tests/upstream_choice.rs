//! Which of a site's origins is asked: by path or load, and by what checks and requests say of
//! them.

mod support;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use damelo_http_proxy::{HealthChecks, OriginChoice, Settings};
use support::{Gate, Home, Nobody, Origin, Proxy, Reply, eventually, read_message, reply, send_to};

fn named(name: &'static str) -> Origin {
    Origin::start(move |_| reply(200, "Cache-Control: no-store", name))
}

fn url(origin: &Origin) -> String {
    format!("http://{}", origin.address)
}

#[test]
fn each_path_has_its_origin_and_another_when_that_is_gone() {
    let (home, first, second) = (Home::new(), named("first"), named("second"));
    let missing = Nobody::new();
    let proxy = Proxy::start_to(&home, url(&first), |config| {
        config.upstream.more_origins = vec![url(&second), missing.url()];
        config.upstream.ejection.failures = 3;
        config.upstream.ejection.period = Duration::from_secs(3600);
    });
    let chosen = || -> Vec<String> {
        (0..30).map(|number| proxy.get(&format!("/{number}")).text()).collect()
    };
    let before = chosen();
    assert!(before.iter().all(|name| name == "first" || name == "second"), "{before:?}");
    assert!(before.iter().any(|name| name == "first") && before.iter().any(|n| n == "second"));
    assert_eq!(before, chosen(), "the same again");
    // Both origins are asked by the name of the first.
    assert_eq!(second.last().header("host"), first.address.to_string());
    // The missing origin was tried until it was ejected.
    assert_eq!(proxy.metric("damelo_proxy_origin_failovers_total"), 3);
    assert_eq!(proxy.metric("damelo_proxy_origin_ejections_total"), 1);
}

/// A client that is slow with its request is not held against it.
#[test]
fn an_origin_that_hangs_is_ejected_whichever_limit_ends_that() {
    let (home, gate) = (Home::new(), Gate::default());
    let held = gate.clone();
    let hangs = Origin::start(move |_| {
        held.wait();
        reply(200, "", "")
    });
    let sound = named("sound");
    let proxy = Proxy::start_to(&home, url(&hangs), |config| {
        config.upstream.more_origins = vec![url(&sound)];
        config.upstream.ejection.failures = 3;
        config.timeouts.total = Some(Duration::from_millis(300));
    });
    let slow: Vec<_> = (0..20)
        .map(|number| {
            let path = format!("/slow/{number}");
            send_to(proxy.info.address, "POST", &path, "Content-Length: 9", b"")
        })
        .collect();
    for mut slow in slow {
        assert_eq!(read_message(&mut slow, false).expect("an answer").status(), 408);
    }
    assert_eq!(proxy.metric("damelo_proxy_origin_ejections_total"), 0);
    let asked = (0..).take_while(|number| {
        proxy.get(&format!("/{number}"));
        proxy.metric("damelo_proxy_origin_ejections_total") == 0
    });
    assert!(asked.take(100).count() < 100, "it was never ejected");
    eventually("the other is asked", || proxy.get("/").text() == "sound");
    gate.open();
}

#[test]
fn the_least_loaded_is_asked() {
    let (home, idle) = (Home::new(), named("idle"));
    let gate = Gate::default();
    let held = gate.clone();
    let busy = Origin::start(move |_| {
        held.wait();
        reply(200, "Cache-Control: no-store", "busy")
    });
    let proxy = Proxy::start_to(&home, url(&busy), |config| {
        config.upstream.more_origins = vec![url(&idle)];
        config.upstream.origin_choice = OriginChoice::LeastLoaded;
    });
    std::thread::scope(|scope| {
        // Some of these requests go to the busy origin, which holds them.
        for number in 0..20 {
            let proxy = &proxy;
            scope.spawn(move || proxy.get(&format!("/{number}")));
        }
        eventually("some hang, the others are done", || busy.count() + idle.count() == 20);
        for number in 0..20 {
            assert_eq!(proxy.get(&format!("/other/{number}")).text(), "idle");
        }
        gate.open();
    });
}

/// An origin that says these words to each request, and closes; it counts them.
fn breaking(words: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if !matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
                continue;
            }
            count.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(words.as_bytes());
        }
    });
    (url, asked)
}

#[test]
fn what_one_origin_broke_off_another_answers_and_no_third_one() {
    for words in ["", "these are other words\r\n\r\n"] {
        let (home, good) = (Home::new(), named("good"));
        let (broken, asked) = breaking(words);
        let proxy = Proxy::start_to(&home, broken, |config| {
            config.upstream.more_origins = vec![url(&good)];
            config.upstream.ejection.failures = 0;
        });
        let resends = || proxy.metric("damelo_proxy_origin_resends_total") as usize;
        for number in 0..20 {
            assert_eq!(proxy.get(&format!("/{number}")).status(), 200, "{words:?} {number}");
        }
        let broke_off = asked.load(Ordering::SeqCst);
        assert!(broke_off > 0 && resends() == broke_off, "{words:?} {broke_off}");
        // What may have been done is not done again.
        for number in 0..20 {
            proxy.ask("POST", &format!("/{number}"), "Content-Length: 0");
        }
        let posted = asked.load(Ordering::SeqCst) - broke_off;
        assert!(posted > 0 && good.count() == 40 - posted, "{words:?} {posted}");
        assert_eq!(resends(), broke_off, "{words:?}");
    }
    let home = Home::new();
    let [(first, one), (second, two), (third, three)] = ["", "", ""].map(breaking);
    let proxy = Proxy::start_to(&home, first, |config| {
        config.upstream.more_origins = vec![second, third];
        config.upstream.ejection.failures = 0;
    });
    assert_eq!(proxy.get("/").status(), 502);
    let asked = [one, two, three].map(|asked| asked.load(Ordering::SeqCst));
    assert_eq!((asked.iter().sum::<usize>(), asked.iter().max()), (2, Some(&1)), "{asked:?}");
}

#[test]
fn what_one_origin_answers_by_a_status_to_retry_another_answers() {
    let (home, good) = (Home::new(), named("good"));
    let busy = Origin::start(|_| reply(503, "Cache-Control: no-store", "busy"));
    let retrying = |failures: u32, statuses: &[u16]| {
        let statuses = statuses.iter().map(|code| code.to_string()).collect::<Vec<_>>().join(", ");
        let text = format!(
            "upstream.retry_statuses = [{statuses}]\nupstream.eject_failures = {failures}\n\
             upstream.more_origins = [\"{}\"]\n",
            url(&good)
        );
        let upstream = Settings::parse(&text).expect("good settings").proxy.upstream;
        Proxy::start_to(&home, url(&busy), |config| config.upstream = upstream)
    };
    let ask_all = |proxy: &Proxy, method: &str, more: &str| -> Vec<String> {
        (0..40).map(|number| proxy.ask(method, &format!("/{number}"), more).text()).collect()
    };
    // Without the key it is an answer like any other.
    let proxy = retrying(0, &[]);
    let answers = ask_all(&proxy, "GET", "");
    let own = answers.iter().filter(|text| *text == "busy").count();
    assert!(own > 0 && own == busy.count() && answers.contains(&"good".to_owned()));
    drop(proxy);
    let proxy = retrying(0, &[502, 503]);
    assert!(ask_all(&proxy, "GET", "").iter().all(|text| text == "good"));
    assert_eq!(proxy.metric("damelo_proxy_origin_resends_total") as usize, own);
    assert_eq!(busy.count(), 2 * own);
    // What may have been done is not done again.
    let posted = ask_all(&proxy, "POST", "Content-Length: 0");
    assert_eq!(posted.iter().filter(|text| *text == "busy").count(), own);
    drop(proxy);
    // It is left alone after some of them.
    let proxy = retrying(3, &[503]);
    assert!(own > 3);
    let before = busy.count();
    assert!(ask_all(&proxy, "GET", "").iter().all(|text| text == "good"));
    assert_eq!(busy.count(), before + 3);
    assert_eq!(proxy.metric("damelo_proxy_origin_ejections_total"), 1);
    drop(proxy);
    // Of those that all answer so, the second is the last that is asked.
    let [one, two, three] = [(); 3].map(|()| Origin::start(|_| reply(503, "", "busy")));
    let proxy = Proxy::start_to(&home, url(&one), |config| {
        config.upstream.more_origins = vec![url(&two), url(&three)];
        config.upstream.retry_statuses = vec![http::StatusCode::SERVICE_UNAVAILABLE];
    });
    let answer = proxy.get("/");
    assert_eq!((answer.status(), answer.text()), (503, "busy".to_owned()));
    let asked = [one, two, three].map(|origin| origin.count());
    assert_eq!((asked.iter().sum::<usize>(), asked.iter().max()), (2, Some(&1)), "{asked:?}");
}

/// A backup is healthy where all others start at the same time; what one broke off is not for it.
#[test]
fn what_one_origin_answers_by_a_status_to_retry_a_backup_answers() {
    let (home, backup) = (Home::new(), named("backup"));
    let busy = [(); 2].map(|()| Origin::start(|_| reply(503, "", "busy")));
    let (broken, broke_off) = breaking("");
    let rules = format!(
        "[[rule]]\nprefix = \"/broken\"\nto = \"{broken}\"\nbackup = \"{}\"\n",
        url(&backup)
    );
    let ruleset = Settings::parse(&rules).expect("good rules").proxy.ruleset;
    let proxy = Proxy::start_to(&home, url(&busy[0]), |config| {
        config.ruleset = ruleset;
        config.upstream.backup_origins = vec![url(&backup)];
        config.upstream.retry_statuses = vec![http::StatusCode::SERVICE_UNAVAILABLE];
        config.upstream.ejection.failures = 0;
    });
    for number in 1..4 {
        assert_eq!(proxy.get("/").text(), "backup");
        assert_eq!((busy[0].count(), backup.count()), (number, number));
    }
    assert_eq!(proxy.get("/broken").status(), 502);
    assert_eq!((broke_off.load(Ordering::SeqCst), backup.count()), (1, 3));
    drop(proxy);
    // Another one that is no backup goes before.
    let proxy = Proxy::start_to(&home, url(&busy[0]), |config| {
        config.upstream.more_origins = vec![url(&busy[1])];
        config.upstream.backup_origins = vec![url(&backup)];
        config.upstream.retry_statuses = vec![http::StatusCode::SERVICE_UNAVAILABLE];
        config.upstream.ejection.failures = 0;
    });
    assert_eq!(proxy.get("/").status(), 503, "it is sent once more, no more");
    assert_eq!((busy[0].count(), busy[1].count(), backup.count()), (4, 1, 3));
}

#[test]
fn a_backup_is_asked_once_the_others_are_out_of_reach() {
    let (home, good, backup) = (Home::new(), named("good"), named("backup"));
    let (missing, other) = (Nobody::new(), Nobody::new());
    let rules = format!(
        "[[rule]]\nprefix = \"/ruled\"\nto = \"{}\"\nbackup = \"{}\"\n",
        other.url(),
        url(&backup)
    );
    let ruleset = Settings::parse(&rules).expect("good rules").proxy.ruleset;
    let proxy = Proxy::start_to(&home, missing.url(), |config| {
        config.ruleset = ruleset;
        config.upstream.more_origins = vec![url(&good)];
        config.upstream.backup_origins = vec![url(&backup)];
    });
    for number in 0..20 {
        assert_eq!(proxy.get(&format!("/{number}")).text(), "good");
    }
    assert_eq!(proxy.get("/ruled").text(), "backup");
    assert_eq!((good.count(), backup.count()), (20, 1));
}

#[test]
fn checks_take_an_origin_out_and_back() {
    let home = Home::new();
    let good = Origin::start(|request| match request.path() {
        "/health" => reply(204, "", ""),
        _ => reply(200, "Cache-Control: no-store", "good"),
    });
    let sick = Arc::new(AtomicBool::new(true));
    let is_sick = sick.clone();
    let other = Origin::start(move |request| match request.path() {
        "/health" if is_sick.load(Ordering::SeqCst) => reply(500, "", ""),
        "/health" => reply(204, "", ""),
        _ => reply(200, "Cache-Control: no-store", "other"),
    });
    let proxy = Proxy::start_to(&home, url(&good), |config| {
        config.upstream.more_origins = vec![url(&other)];
        config.upstream.check = Some(HealthChecks {
            path: "/health".to_owned(),
            interval: Duration::from_millis(50),
            ..HealthChecks::default()
        });
    });
    let chosen = || -> Vec<String> {
        (0..30).map(|number| proxy.get(&format!("/{number}")).text()).collect()
    };
    eventually("the sick one is left alone", || chosen().iter().all(|name| name == "good"));
    assert!(proxy.metric("damelo_proxy_origin_checks_failed_total") >= 3);
    sick.store(false, Ordering::SeqCst);
    eventually("it is asked again", || chosen().iter().any(|name| name == "other"));
}

#[test]
fn when_all_origins_are_down_they_are_asked_all_the_same() {
    let (home, missing) = (Home::new(), Nobody::new());
    let origin = Origin::start(|request| match request.path() {
        "/health" => reply(500, "", ""),
        _ => reply(200, "Cache-Control: no-store", "x"),
    });
    let proxy = Proxy::start_to(&home, url(&origin), |config| {
        config.upstream.more_origins = vec![missing.url()];
        config.upstream.check = Some(HealthChecks {
            path: "/health".to_owned(),
            interval: Duration::from_millis(20),
            fall: 1,
            ..HealthChecks::default()
        });
    });
    eventually("both are down", || proxy.metric("damelo_proxy_origin_checks_failed_total") > 4);
    assert_eq!(proxy.get("/").text(), "x");
}

#[test]
fn nobody_waits_for_an_origin_that_is_known_to_be_down() {
    let home = Home::new();
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = hangs.clone();
    let origin = Origin::start(move |request| match request.path() {
        "/health" => reply(500, "", ""),
        _ => {
            let delay = Duration::from_secs(if hanging.load(Ordering::SeqCst) { 60 } else { 0 });
            Reply { delay, ..reply(200, "Cache-Control: max-age=60", "x") }
        }
    });
    let proxy = Proxy::start_to(&home, url(&origin), |config| {
        config.timeouts.origin_header = Duration::from_secs(2);
        config.upstream.check = Some(HealthChecks {
            path: "/health".to_owned(),
            interval: Duration::from_secs(3600),
            fall: 1,
            ..HealthChecks::default()
        });
    });
    eventually("it is down", || proxy.metric("damelo_proxy_origin_checks_failed_total") == 1);
    // One request may try the origin; its answer shows that the checks are wrong.
    for path in ["/a", "/b"] {
        assert_eq!(proxy.get(path).status(), 200);
    }
    hangs.store(true, Ordering::SeqCst);
    assert_eq!(proxy.get("/c").status(), 504);
    let asked = origin.count();
    let refused = proxy.get("/d");
    assert_eq!(refused.status(), 503);
    assert!(refused.cache().contains("detail=origin-down"), "{refused:?}");
    proxy.pass_seconds(100);
    let stale = proxy.get("/a");
    assert_eq!((stale.status(), stale.text().as_str()), (200, "x"));
    assert!(stale.cache().contains("detail=origin-down"), "{stale:?}");
    assert_eq!(origin.count(), asked);
}

/// Errors in answer to the requests that try it are no sign that its checks are wrong.
#[test]
fn an_origin_whose_checks_fail_is_not_asked_more_for_answering_errors() {
    let (home, ails) = (Home::new(), Arc::new(AtomicBool::new(true)));
    let ailing = ails.clone();
    let origin = Origin::start(move |request| match request.path() {
        "/health" => reply(500, "", ""),
        _ if ailing.load(Ordering::SeqCst) => reply(500, "", "ill"),
        _ => reply(404, "", "well"),
    });
    let proxy = Proxy::start_to(&home, url(&origin), |config| {
        config.upstream.check = Some(HealthChecks {
            path: "/health".to_owned(),
            interval: Duration::from_secs(3600),
            fall: 1,
            ..HealthChecks::default()
        });
    });
    let failed = || proxy.metric("damelo_proxy_origin_checks_failed_total");
    eventually("it is down", || failed() == 1);
    assert_eq!(proxy.get("/a").text(), "ill");
    let asked = origin.count();
    for path in ["/b", "/c"] {
        let refused = proxy.get(path);
        assert_eq!(refused.status(), 503);
        assert!(refused.cache().contains("detail=origin-down"), "{refused:?}");
    }
    assert_eq!(origin.count(), asked);
    // Other checks, which fail as well, try it anew.
    ails.store(false, Ordering::SeqCst);
    let check = "check = \"/health every 1h fall 1 host b.test\"";
    let text = format!("to = \"{}\"\n[upstream]\n{check}\n", url(&origin));
    let new = Settings::parse(&text).expect("settings").proxy;
    proxy.info.control.reload(new).expect("reloaded");
    eventually("it is down again", || failed() == 2);
    for path in ["/d", "/e"] {
        assert_eq!(proxy.get(path).text(), "well", "a page that is missing is no error of it");
    }
}

/// Checks that begin with a reload take an origin out; the next reload takes the checks away, or
/// asks for something that the origin has.
#[test]
fn checks_come_change_and_go_with_reloads() {
    let origin = Origin::start(|request| match (request.path(), request.header("host").as_str()) {
        ("/up", "app.test") => reply(204, "", ""),
        ("/up" | "/gone", _) => reply(404, "", ""),
        _ => reply(200, "cache-control: no-store", "x"),
    });
    let proxy = Proxy::start(&origin);
    let healthy = format!("damelo_proxy_origin_healthy{{origin=\"http://{}\"}}", origin.address);
    let is_healthy = || proxy.metric(&healthy) == 1;
    let failed = || proxy.metric("damelo_proxy_origin_checks_failed_total");
    let reload = |check: &str| {
        let text = format!("to = \"http://{}\"\n[upstream]\ncheck = \"{check}\"\n", origin.address);
        let new = damelo_http_proxy::Settings::parse(&text).expect("settings").proxy;
        proxy.info.control.reload(new).expect("reloaded");
    };
    assert!(is_healthy() && failed() == 0);
    for other in ["none", "/up host app.test every 10ms", "/gone expect 200-404 every 10ms"] {
        reload("/gone every 10ms fall 2 rise 1000000");
        eventually("it is down", || !is_healthy());
        reload(other);
        eventually("it does not stay down", is_healthy);
        let (before, asked) = (failed(), origin.count());
        if other != "none" {
            eventually("it is checked", || origin.count() > asked + 3);
        }
        assert!(is_healthy() && failed() == before, "{other}");
    }
}
