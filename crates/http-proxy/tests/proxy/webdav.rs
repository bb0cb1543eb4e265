//! Methods of WebDAV, and what they do to what is stored.

use crate::support::{Origin, Proxy, reply};

/// RFC 4918 §9.8, §9.9: what is moved or copied takes another resource's place.
#[test]
fn a_move_or_copy_invalidates_where_it_goes() {
    let origin = Origin::start(move |request| match request.method() {
        "GET" => reply(200, "Cache-Control: max-age=60", "x"),
        "PROPFIND" => reply(207, "", "x"),
        _ if request.header("destination") == "/refused" => reply(412, "", ""),
        // Nobody asked for a 304, so that it says nothing of what was done.
        _ if request.header("destination") == "/broken" => reply(304, "", ""),
        _ => reply(204, "", ""),
    });
    let proxy = Proxy::start(&origin);
    let here = "http://a/new";
    for (method, target, destination, gone) in [
        ("MOVE", "/old", "/new", [true, true, false]),
        ("COPY", "/old", here, [true, true, false]),
        ("MOVE", "/old", "http://elsewhere/new", [true, false, false]),
        ("PUT", "/old", "/new", [true, false, false]),
        ("PROPFIND", "/old", "/new", [false; 3]),
        ("MOVE", "/old", "/refused", [false; 3]),
        ("MOVE", "/old", "/broken", [true, false, true]),
    ] {
        let paths = ["/old", "/new", "/broken"];
        let hits = || paths.map(|path| proxy.get(path).cache().contains("; hit"));
        hits();
        assert_eq!(hits(), [true; 3]);
        proxy.ask(method, target, &format!("Destination: {destination}"));
        assert_eq!(hits(), gone.map(|gone| !gone), "{method} {target} {destination}");
    }
}
