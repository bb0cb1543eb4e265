//! Purging what lies together by the names of groups.

use damelo_http_rules::key::QueryRule;
use serde_json::json;

use crate::support::{Origin, Proxy, reply};
use crate::{allow, is_hit, purge, start};

/// By the names that an operator has for what lies together, whatever it is grouped by.
#[test]
fn groups_are_purged_by_the_names_of_what_they_hold() {
    let origin = Origin::start(|request| {
        let kind = if request.path().ends_with(".html") { "text/html" } else { "image/png" };
        let caching = "cache-control: max-age=60";
        reply(
            200,
            &format!("{caching}\ncontent-type: {kind}\nx-of: {}", &request.path()[1..2]),
            "x",
        )
    });
    let paths = ["/page.html", "/i/1.png", "/deep/a/2.png", "/3.png"];
    for (by, group, gone) in [
        ("named", "page:http://a/page.html", [true, true, false, false]),
        ("named", "http://a/page.html", [true, true, false, false]),
        ("named", "page:http://other/page.html", [false; 4]),
        ("named", "path:a/deep", [false, false, true, false]),
        ("named", "path:a", [false, false, false, true]),
        ("host", "host:a", [true; 4]),
        ("host", "a", [true; 4]),
        ("host", "host:other", [false; 4]),
        ("host", "a/deep", [false; 4]),
        ("path:2", "path:a/deep/a/", [false, false, true, false]),
        ("path:2", "path:a/deep", [false; 4]),
        ("header:X-Of", "header:a/i", [false, true, false, false]),
    ] {
        let proxy = Proxy::start_with(&origin, |config| {
            allow(config);
            config.groups.by = by.parse().expect("a grouping");
        });
        for by_method in [false, true] {
            purge(&proxy, &json!({ "all": true }));
            for path in paths {
                let embedded =
                    if path.starts_with("/i/") { "Referer: http://a/page.html" } else { "" };
                proxy.get_with(path, embedded);
                assert!(is_hit(&proxy, path), "{path}");
            }
            if by_method {
                let order = format!("Host: a\nPurge-Group: {group}");
                assert_eq!(proxy.ask("PURGE", "/", &order).status(), 200, "{group}");
            } else {
                purge(&proxy, &json!({ "group": group }));
            }
            let hits = paths.map(|path| !is_hit(&proxy, path));
            assert_eq!(hits, gone, "{group}, grouped by {by}");
        }
    }
    let proxy = start(&origin);
    for no_group in ["page:a", "page:", "host:", "host:a/b", "host:a b", "path:/a", "id:x"] {
        let order = format!("Host: a\nPurge-Group: {no_group}");
        assert_eq!(proxy.ask("PURGE", "/", &order).status(), 400, "{no_group}");
    }
}

/// A name that is no host's purges no host, though keys have one for all.
#[test]
fn a_tag_is_not_the_group_of_the_only_host() {
    let origin = Origin::start(|_| reply(200, "cache-control: max-age=60", "x"));
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.groups.by = "host".parse().expect("a grouping");
        config.forwarded.x_forwarded = false;
    });
    for (group, is_gone) in [("news", false), ("host:news", true)] {
        proxy.get("/a");
        assert!(is_hit(&proxy, "/a"));
        purge(&proxy, &json!({ "group": group }));
        assert_eq!(is_hit(&proxy, "/a"), !is_gone, "{group}");
    }
}

/// The page is, however it was asked for; what goes with it is what named it so.
#[test]
fn a_page_whose_query_is_not_in_its_key_is_purged_with_its_group() {
    let origin =
        Origin::start(|_| reply(200, "cache-control: max-age=60\ncontent-type: text/html", "x"));
    let proxy = Proxy::start_with(&origin, |config| {
        allow(config);
        config.caching.key.query = QueryRule::Except(vec!["utm_*".to_owned()]);
    });
    proxy.get("/page?utm_source=x");
    assert!(is_hit(&proxy, "/page"));
    purge(&proxy, &json!({ "group": "page:http://a/page" }));
    assert!(!is_hit(&proxy, "/page"));
}
