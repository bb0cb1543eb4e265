//! Declares every key of the configuration file once: parser, defaults, `check-config`, reload and
//! `docs/configuration.md` are all derived from this table.
//!
//! Invariants: names are unique; a key that is `live` takes effect on a reload, every other one
//! only on the next start. Pure, no threads.

use super::Settings;
use super::kinds::{
    AccessRules, Address, CachePath, Certificates, Check, Choosing, Cookies, Count, File, Flag,
    Format, GroupRule, Headers, Kind, Limit, Listeners, LogFile, Negotiated, Networks, OriginUrl,
    Origins, Percent, Query, Size, Statuses, Time, Value, Writes,
};
use super::ranges::{
    CacheName, CookieNames, HeadSize, HeaderSize, HostName, Lines, Protocols, PurgeMethods, Secret,
    SliceSize, Span, Threads, UriSize,
};

/// One configuration key.
pub(crate) struct Key {
    /// Full name: table, dot, name.
    pub(crate) name: &'static str,
    /// Syntax of its values.
    pub(crate) written: &'static str,
    /// Whether a reload applies it.
    pub(crate) live: bool,
    /// Its effect, in one or two sentences.
    pub(crate) help: &'static str,
    /// Reads a value into the settings.
    pub(crate) set: fn(&mut Settings, &Value) -> Result<(), String>,
    /// Shows the value in the settings, as it would be written in a file.
    pub(crate) show: fn(&Settings) -> String,
    /// The field of [`Settings`] that holds the value.
    #[cfg(test)]
    field: &'static str,
}

macro_rules! keys {
    ($($name:literal $when:ident $kind:ident [$($field:ident).+: $type:ty] $help:literal;)*) => {
        /// All keys, in the order of the document.
        pub(crate) const KEYS: &[Key] = &[$(Key {
            name: $name,
            written: <$kind as Kind<$type>>::WRITTEN,
            live: keys!(@ $when),
            help: $help,
            set: |settings, value| {
                settings.$($field).+ = <$kind as Kind<$type>>::read(value)?;
                Ok(())
            },
            show: |settings| <$kind as Kind<$type>>::show(&settings.$($field).+),
            #[cfg(test)]
            field: stringify!($($field).+),
        },)*];
    };
    (@ live) => { true };
    (@ start) => { false };
}

keys! {
    "from" start Address [proxy.from: std::net::SocketAddr] "Address to listen on; port 0 takes a free one.";
    "to" live OriginUrl [proxy.to: crate::config::OriginTarget] "The origin. A reload takes requests from then on to another one, but for the demo, which a start alone begins and ends; it wants `cache` to be set, whose default is named after the origin. What is stored stays and answers as before: purge it if the other origin is another site.";
    "cache" start CachePath [cache: Option<String>] "Store to use, made with this size if it does not exist. With several paths, its volumes in their order.";
    "without_missing" start Flag [without_missing: bool] "Start though volumes of the cache are missing, all but the first: a disk died, or is not mounted. Standard error says so, and `damelo_volumes_out`. What was stored there is fetched again; when it is back, a restart takes it into use, and nothing is served that was purged or replaced meanwhile. If not, a start fails until all are there.";
    "seeks" start Flag [seeks: Option<bool>] "Whether the disks of the cache have seeks, an arm that moves: then few I/Os are in flight, in the order of their places. `auto` is what the system says of each, but for virtual disks, which say so without knowing and are taken for flash; the start message and `damelo stat` say what was found.";
    "disk_writes_max" start Writes [disk_writes_max: Option<crate::config::WriteLimit>] "Most that is written to the disks of the cache in a time, as for flash that is to last: once it is spent, new answers are not stored (`damelo_drops{reason=\"not_admitted\"}`) until time has paid for what was written, headers and what is kept when space is reused included. Unused budget adds up to that of one such time; a start has a full one. What is small and must be stored (purges, the rest of an answer of which a part was taken, answers without a body) is, and is paid back.";
    "memory" start Size [memory: damelo::ByteSize] "Memory for data.";
    "workers" start Threads [proxy.workers: usize] "Threads that serve, each with its own event loop; a connection goes to one that has few.";
    "name" live CacheName [proxy.name: String] "Name of this cache in `Cache-Status` and `Via`: letters, digits and `-`.";
    "preserve_host" live Flag [proxy.preserve_host: bool] "Send the client's `Host` to the origin, in place of the origin's own. Where this is off, redirects of the origin to itself, by its own name, lose scheme and host, so that clients come back here.";
    "listen" start Listeners [proxy.listen: Vec<crate::config::transport::Listener>] "Listeners besides `from`: `tcp:ADDR:PORT` or `unix:PATH`; with `tls+` before it clients speak TLS, with `proxy+` each connection begins with a PROXY header.";
    "tls.certificates" live Certificates [proxy.tls.certificates: Vec<crate::config::transport::CertificateFiles>] "Certificate chains and keys for `tls+` listeners, PEM files, read again when they change; the first serves clients that name no host.";
    "proxy_protocol.networks" live Networks [proxy.proxy_protocol.networks: Vec<ipnet::IpNet>] "Networks whose PROXY headers are believed on `proxy+` listeners; all others are turned away there.";
    "upgrades" live Protocols [proxy.upgrades: Vec<String>] "Protocols that a client may leave HTTP for, if the origin agrees; each as clients name it, with its version if they say one.";
    "obey_request_directives" live Flag [proxy.caching.obey_request_directives: bool] "Obey `no-cache`, `max-age`, `min-fresh` and `max-stale` of requests.";
    "admin.from" start Address [proxy.admin.from: Option<std::net::SocketAddr>] "Address of the admin listener: metrics, health, purging, `explain` and `top`. Keep it on loopback.";
    "admin.networks" live Networks [proxy.admin.networks: Vec<ipnet::IpNet>] "Networks that the admin listener answers; all others get 403, whatever they ask for.";
    "admin.token" live Secret [proxy.admin.token: Option<String>] "What the admin listener wants as `Authorization: Bearer TOKEN` for all but `/healthz`, `/readyz` and `/metrics`.";
    "limits.header_bytes_max" live HeadSize [proxy.limits.header_bytes_max: usize] "Headers of requests and of the origin's responses larger than this are refused. For HTTP/1 it applies to new connections, and to others once they have rested (`timeouts.client_rest`).";
    "limits.connections_max" start Count [proxy.limits.connections_max: usize] "Connections of clients at once. Near that, those that nobody has used for 5 s (1 s once it is reached) end as after `timeouts.client_idle`; where all are in use, further ones wait to be accepted, also while the proxy stops.";
    "limits.connections_per_client_max" live Limit [proxy.limits.connections_per_client_max: usize] "Connections at once from one address, or one /64 of IPv6. Near that, those that nobody uses end as near `limits.connections_max`; where all are in use, further ones get 429, or are closed where TLS is spoken. Loopback is not limited, nor is who connects from `forwarded.trust_networks`.";
    "limits.header_lines_max" live Lines [proxy.limits.header_lines_max: usize] "Lines in the headers of a request; more get 431. For HTTP/1 a larger number applies to new connections, and to others once they have rested (`timeouts.client_rest`).";
    "limits.origin_header_lines_max" live Lines [proxy.limits.origin_header_lines_max: usize] "Lines in the headers of an origin's response over HTTP/1.1; more make it a 502.";
    "limits.upload_bytes_max" live Size [proxy.limits.upload_bytes_max: Option<u64>] "Longest body of a request; a longer one gets 413: at once if its length is said, else when it has come so far, and the origin's connection is then closed. None: any.";
    "limits.upload_second_bytes_min" live Limit [proxy.limits.upload_second_bytes_min: u32] "Slowest pace of a request's body, in bytes a second. It counts once a body was waited for as long as `timeouts.body_idle` in all; one that is slower on average is answered 408. Time in which the origin takes nothing does not count, nor does any once the answer has begun.";
    "limits.half_closed_clients" live Flag [proxy.limits.half_closed_clients: bool] "Answer a client of HTTP/1 that has closed its sending side and still reads. It looks like one that is gone, whose request is dropped otherwise, at the origin too. Applies to new connections.";
    "limits.uri_bytes_max" live UriSize [proxy.limits.uri_bytes_max: usize] "Request targets larger than this get 414. They count in the limits of headers, too: not larger than `limits.header_bytes_max`.";
    "limits.http2_streams_max" live Count [proxy.limits.http2_streams_max: u32] "Requests at once on one HTTP/2 connection. Applies to new connections.";
    "limits.http2_resets_max" live Count [proxy.limits.http2_resets_max: usize] "Streams that an HTTP/2 client may open and reset before they were looked at; one more ends the connection. Applies to new connections.";
    "limits.http2_cancels_max" live Limit [proxy.limits.http2_cancels_max: u32] "Requests that an HTTP/2 client may cancel at once on one connection before their answers begin, as each may have cost one to the origin; one more ends the connection. Not for who connects from `forwarded.trust_networks`. Applies to new connections.";
    "limits.http2_cancels_second_max" live Count [proxy.limits.http2_cancels_second_max: u32] "For how many of them there is room again in each second. Applies to new connections.";
    "limits.http2_header_bytes_max" live HeaderSize [proxy.limits.http2_header_bytes_max: u32] "Decoded header fields of one HTTP/2 request larger than this get 431. Applies to new connections.";
    "limits.body_bytes_max" live Size [proxy.limits.body_bytes_max: Option<u64>] "Largest response body that is stored; none: half of the cache, beyond which none is stored in one piece in any case, and all of it for what is stored in slices. A part that comes as a client asks for it counts by its own length.";
    "limits.whole_body_bytes_max" start Size [proxy.limits.whole_body_bytes_max: u64] "Bodies up to this size lie beside their headers and are served as one piece of memory; larger ones are streamed.";
    "limits.pool_idle_max" live Count [proxy.limits.pool_idle_max: usize] "Idle connections to the origin kept by each worker.";
    "limits.transit_bytes_max" live Size [proxy.limits.transit_bytes_max: u64] "What bodies from origins may take in memory on their way to clients and into the store. Beyond it they are read in pieces of 31KiB, one waits for each client, and who joins a fill that nobody has joined waits for at most 1MiB to be stored.";
    "timeouts.connect" live Span [proxy.timeouts.connect: std::time::Duration] "To connect to the origin, finding its address, TLS and, over HTTP/2, the SETTINGS of the origin included.";
    "timeouts.origin_header" live Span [proxy.timeouts.origin_header: std::time::Duration] "From the end of a request to the origin's headers.";
    "timeouts.origin_continue" live Time [proxy.timeouts.origin_continue: std::time::Duration] "The body of a request with `Expect: 100-continue` waits so long at most for the origin, of HTTP/1.1 as its client, to say by a 100 that it wants it, and then goes there all the same. An origin that refuses it gets none of it. 0: the origin is not asked, and its client told at once.";
    "timeouts.body_idle" live Span [proxy.timeouts.body_idle: std::time::Duration] "Longest silence within a body, in either direction; where request and answer run at once, in both together.";
    "timeouts.client_header" live Span [proxy.timeouts.client_header: std::time::Duration] "From the first byte of a request to the end of its headers, for a TLS handshake, for a PROXY header; then 408. Applies to new connections.";
    "timeouts.client_idle" live Span [proxy.timeouts.client_idle: std::time::Duration] "A connection may wait so long for its next request. Applies to new connections.";
    "timeouts.client_rest" live Time [proxy.timeouts.client_rest: std::time::Duration] "After so long without a request an HTTP/1 connection keeps its socket only, no buffers, until something comes. Applies to new connections.";
    "timeouts.client_write" live Span [proxy.timeouts.client_write: std::time::Duration] "A client may take nothing of its answer for so long. Applies to new connections.";
    "timeouts.total" live Span [proxy.timeouts.total: Option<std::time::Duration>] "From sending a request to the origin to the end of its answer.";
    "timeouts.tunnel_idle" live Span [proxy.timeouts.tunnel_idle: std::time::Duration] "A tunnel (CONNECT, WebSocket) in which nothing moves is cut after so long.";
    "timeouts.pool_idle" live Time [proxy.timeouts.pool_idle: std::time::Duration] "An idle connection to the origin is kept so long.";
    "timeouts.pool_age" live Span [proxy.timeouts.pool_age: std::time::Duration] "A connection to the origin gets new requests for so long, or by chance up to a tenth less, also one that is busy, but for those that are one client's own (NTLM, Negotiate). The next one that is opened goes to another address of its name, if that has several.";
    "timeouts.collapse" live Time [proxy.timeouts.collapse: std::time::Duration] "After so long without an answer from the origin, who waits for another request that fetches the same resource has what is stale, if it may; the others go on waiting, for `timeouts.origin_header` in all. Longest wait for the end of an answer that cannot be read along.";
    "timeouts.leave" live Time [proxy.timeouts.leave: std::time::Duration] "When the proxy is told to stop it takes connections for so long all the same, while `/readyz` says 503: a balancer that asks there sends its clients elsewhere before any is refused. `timeouts.drain` follows.";
    "timeouts.drain" live Time [proxy.timeouts.drain: std::time::Duration] "For answers under way when the proxy is told to stop.";
    "timeouts.stop" live Span [stop_timeout: std::time::Duration] "From SIGTERM to the end of the process: answers under way, writing out what is in memory, the checkpoint. What takes longer is cut off, as by a crash.";
    "fill.finish_bytes_max" live Size [proxy.fill.finish_bytes_max: u64] "A fill goes on without its client if no more than this is left. Where the length is unknown: while no more than this has come, and for `timeouts.body_idle` at most.";
    "fill.finish_percent_min" live Percent [proxy.fill.finish_percent_min: u8] "A fill goes on without its client if this share is done.";
    "groups.by" live GroupRule [proxy.groups.by: crate::config::Grouping] "What lies together. `named`: what the origin names as a group (`Cache-Groups`, or the first key of `Surrogate-Key`, `xkey` or `Cache-Tag`), else as with `page`. With any other value what the origin names does not count: a page and what it embeds, a host, a host and N path segments, what has the same value of a response header, or nothing. Purges by tag and `Cache-Group-Invalidation` work with each.";
    "groups.prefetch" live Flag [proxy.groups.prefetch: bool] "When a document is read from disk, bring the objects of its group into memory.";
    "groups.hints_by_use" live Flag [proxy.groups.hints_by_use: bool] "Love groups that are asked for often for their size, hate those that only ever come in; a rule's `hint` goes before.";
    "log.to" live LogFile [proxy.log.to: crate::config::LogTarget] "Where a line for each request goes. A file is opened again on SIGUSR1, another one at a reload.";
    "log.format" live Format [proxy.log.format: crate::config::LogFormat] "What a line looks like.";
    "errors.page" live File [proxy.errors.page: Option<std::path::PathBuf>] "The body of the proxy's own 502, 503 and 504, a file of HTML of at most 64 KiB, read at start and reload; `{status}` and `{reason}` in it stand for the number and its words. None: a line of text that says what failed.";
    "purge.method" live Flag [proxy.purge.method: bool] "Take the method `PURGE` as a purge of its URL instead of passing it on.";
    "purge.methods" live PurgeMethods [proxy.purge.methods: Vec<http::Method>] "The methods that are taken so, such as `BAN` beside `PURGE`; all mean the same.";
    "purge.networks" live Networks [proxy.purge.networks: Vec<ipnet::IpNet>] "Networks that may purge with the method `PURGE`.";
    "purge.tag_headers" live Headers [proxy.purge.tag_headers: Vec<http::HeaderName>] "Headers with tags, words between blanks or commas, in responses and in purges by method, beside `Surrogate-Key`, `Cache-Tag`, `xkey`, `Cache-Groups`, `Cache-Tags` and `X-Magento-Tags`. Responses stored before have no tags by them.";
    "purge.token" live Secret [proxy.purge.token: Option<String>] "What who purges must show as `Authorization: Bearer TOKEN`.";
    "upstream.more_origins" live Origins [proxy.upstream.more_origins: Vec<String>] "Origins besides `to` that serve the same site; all are asked with the host of the first.";
    "upstream.backup_origins" live Origins [proxy.upstream.backup_origins: Vec<String>] "Origins of the same site that are asked only while none of the others is healthy, or once none of them could be reached for a request.";
    "upstream.origin_choice" live Choosing [proxy.upstream.origin_choice: crate::config::transport::OriginChoice] "Which of several is asked: by host, path and query, or the one with the fewest requests under way.";
    "upstream.check" live Check [proxy.upstream.check: Option<crate::config::transport::HealthChecks>] "A GET to each origin at intervals; what does not bring a status as expected (`expect`, such as 204 or 200-404; 2xx or 3xx unless said) `fall` times in a row is not asked until `rise` checks succeed, as long as another origin of the site is. Where checks fail for all of them one request in each interval tries each; once one is answered below 500, all are asked until one fails. `host` is the `Host` that is asked for, else that of the site, of the first one for an origin of several.";
    "upstream.eject_failures" live Limit [proxy.upstream.ejection.failures: u32] "Requests in a row without an answer, or with one of `upstream.retry_statuses`, after which one of several origins is left alone; 0 never.";
    "upstream.eject_period" live Time [proxy.upstream.ejection.period: std::time::Duration] "How long it is left alone.";
    "upstream.retry_statuses" live Statuses [proxy.upstream.retry_statuses: Vec<http::StatusCode>] "Answers by which one of several origins fails a request: a GET, HEAD or OPTIONS without a body, also one that asks for an upgrade, is sent to another of the site, if one is healthy, a backup if none but those are, once, and what that says is the answer. Each counts for `upstream.eject_failures`, whatever the method. 429 and 500 to 599 are possible, such as 502 and 503 while an origin starts.";
    "upstream.http2" live Flag [proxy.upstream.http2: bool] "Speak HTTP/2 to https origins that agree.";
    "upstream.http2_clear_text" live Flag [proxy.upstream.http2_clear_text: bool] "Speak HTTP/2 to http origins without asking.";
    "upstream.http2_streams_max" live Count [proxy.upstream.http2_streams_max: usize] "Requests at once on one HTTP/2 connection to an origin; for more, or more than the origin allows there, there are further connections.";
    "upstream.http2_ping" live Span [proxy.upstream.http2_ping: Option<std::time::Duration>] "A connection of HTTP/2 to an origin that owes an answer and was silent for so long is asked by a PING whether it is there, and closed if nothing comes for 20 s. None: a dead one is found when an answer on it is waited for in vain (`timeouts.origin_header`, `timeouts.body_idle`, or a client that leaves after `timeouts.connect`). It gets no further requests then. Servers of gRPC close connections that ask more often than every 5 minutes.";
    "upstream.authorities" live File [proxy.upstream.authorities: Option<std::path::PathBuf>] "Certificate authorities that https origins are checked against, a PEM file, read again at a reload; none: those of the system.";
    "upstream.tls_name" live HostName [proxy.upstream.tls_name: Option<String>] "Name that the certificates of https origins in `to`, `upstream.more_origins` and `upstream.backup_origins` must be for, and that they are told in the handshake; none: the host of each URL. For origins whose URLs have addresses or names of their own. Origins that rules name are not meant.";
    "upstream.requests_per_origin_max" live Limit [proxy.upstream.requests_per_origin_max: usize] "Requests at once to each origin, of whatever rules and lists, WebSockets until their ends included; who waits longer than `timeouts.connect` for a place gets 503.";
    "forwarded.x_forwarded" live Flag [proxy.forwarded.x_forwarded: bool] "Send `X-Forwarded-For`, `X-Forwarded-Host` and `X-Forwarded-Proto` to the origin. Off for a forward proxy unless said.";
    "forwarded.forwarded" live Flag [proxy.forwarded.forwarded: bool] "Send `Forwarded` (RFC 7239) to the origin.";
    "forwarded.trust_client" live Flag [proxy.forwarded.trust_client: bool] "Believe what the client wrote in these fields, and add to it: right behind another proxy that sets them, and only there. The client in the access log is then the last that they name. Not for forward proxies, whose rules go by who the client is. Else they and their like (`X-Original-URL`, `X-Forwarded-Port` ...) are dropped.";
    "forwarded.trust_networks" live Networks [proxy.forwarded.trust_networks: Vec<ipnet::IpNet>] "With `forwarded.trust_client`: believe only connections from these networks; of the addresses in `X-Forwarded-For` the client is then the last one outside of them. None: all connections are believed, whoever makes them, and the client is the last address; so let no others than the proxy connect. Connections on a Unix socket come from `127.0.0.1`.";
    "forwarded.via" live Flag [proxy.forwarded.via: bool] "Send `Via` to the origin; loops are found by it.";
    "caching.targeted" live Headers [proxy.caching.targeted: Vec<http::HeaderName>] "Fields that go before `Cache-Control`, in this order (RFC 9213).";
    "caching.surrogate" live Flag [proxy.caching.surrogate: bool] "Obey `Surrogate-Control` where none of these is there, and announce it to the origin. Off for a forward proxy unless said.";
    "caching.answer_precondition_failed" live Flag [proxy.caching.answer_precondition_failed: bool] "Answer `If-Match` and `If-Unmodified-Since` from the cache; otherwise such requests go to the origin.";
    "caching.head_as_get" live Flag [proxy.head_as_get: bool] "Answer a HEAD for what is not stored, or is stale, by a GET, whose response is stored as for any other. Its body goes on without a client as after one that left (`fill.finish_bytes_max`); what is known to be uncacheable, or too long for that, and HEADs with `Authorization` or `no-store`, stay HEADs.";
    "caching.slice_bytes" live SliceSize [proxy.caching.slice_bytes: u64] "Length of the aligned slices in which ranges of what is not stored whole are fetched, stored and sent; 0: as the client asks.";
    "caching.heuristic_percent" live Percent [proxy.caching.heuristic_percent: u8] "Share of the time since `Last-Modified` that counts as fresh where the origin says nothing.";
    "caching.heuristic_max" live Time [proxy.caching.heuristic_lifetime_max_s: u64] "Longest lifetime found so.";
    "caching.stale_while_revalidate" live Time [proxy.caching.stale_while_revalidate_s: u64] "`stale-while-revalidate` of responses that say nothing.";
    "caching.stale_if_error" live Time [proxy.caching.stale_if_error_s: u64] "`stale-if-error` of responses that say nothing.";
    "caching.disconnected_stale_max" live Time [proxy.caching.disconnected_stale_max_s: u64] "Staleness served while the origin cannot be reached at all, where nothing forbids it.";
    "caching.stale_beside_s_maxage" live Flag [proxy.caching.stale_beside_s_maxage: bool] "Let `stale-while-revalidate` and `stale-if-error` of an answer or of a rule count beside `s-maxage`, which by RFC 9111 forbids stale answers; those in `[caching]` do not.";
    "caching.set_cookie" live Cookies [proxy.caching.set_cookie: crate::rules::SetCookie] "What happens to a response with `Set-Cookie` that says how long it may be stored, or that it is `public`: stored, stored without it so that only who asked for it gets it, not stored. Others with a cookie are not stored. `strip` for a forward proxy unless said.";
    "caching.accept_encoding" live Negotiated [proxy.caching.accept_encoding: crate::rules::negotiation::Normaliser] "When two `Accept-Encoding` are the same to `Vary`: when they mean the same, to the letter, or when the best of these codings is; then the origin is asked for that one alone.";
    "caching.accept_language" live Negotiated [proxy.caching.accept_language: crate::rules::negotiation::Normaliser] "The same for `Accept-Language`; a client that takes `en-US` takes `en`.";
    "caching.variants_max" live Count [proxy.caching.variants_max: usize] "Variants stored for one resource; the one that was not used for longest makes room.";
    "caching.ranges_max" live Count [proxy.caching.ranges_max: usize] "Ranges answered in one response; a request for more gets the whole.";
    "key.query" live Query [proxy.caching.key.query: crate::rules::key::QueryRule] "Query parameters that count in keys. A `*` at the end of a name stands for any rest; names are compared as origins read them, `%61` as `a`, behind a `;`, too.";
    "key.sort_query" live Flag [proxy.caching.key.sort_query: bool] "Make the order of query parameters no difference.";
    "key.headers" live Headers [proxy.caching.key.headers: Vec<http::HeaderName>] "Request headers that select among variants, whatever `Vary` says.";
    "key.cookies" live CookieNames [proxy.caching.key.cookies: Vec<String>] "Cookies that select among variants.";
    "key.show" live Flag [proxy.caching.show_key: bool] "Send the key in `Cache-Status`.";
    "forward.rules" live AccessRules [forward.rules: Vec<crate::AccessRule>] "`damelo forward`: who may go where; the first rule that matches decides. After the last, clients on this host may and others may not. `@FILE` in place of a client or destination is a file with one of them a line, read at the start and at a reload.";
    "forward.users" start File [forward.users: Option<std::path::PathBuf>] "`damelo forward`: names and hashed passwords of who may use it; read again when the file changes.";
    "forward.password_checks_max" start Count [forward.password_checks.max: usize] "Passwords that may wait to be checked, two of which are being checked; more get 503.";
    "forward.password_checks_per_client_max" start Count [forward.password_checks.per_client_max: usize] "Of these, those of one client, or of one /64 of IPv6; more get 429.";
    "forward.remote" start Flag [forward.remote: bool] "`damelo forward`: listen on addresses that are not loopback.";
    "forward.to_link_local" start Flag [forward.to_link_local: bool] "`damelo forward`: reach link-local addresses and those of metadata services.";
    "forward.to_loopback" start Flag [forward.to_loopback: bool] "`damelo forward`: let clients from elsewhere reach this host's loopback.";
}

/// Finds the key of this name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name most similar to an unknown one, if any is similar enough.
pub(crate) fn nearest<'a>(
    unknown: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let scored = known.into_iter().filter_map(|name| Some((likeness(unknown, name)?, name)));
    Some(scored.max_by(|a, b| a.0.total_cmp(&b.0))?.1)
}

/// How alike two names are, if they are alike at all: by their letters (`conect`), or by their
/// words (`max_connections`). The key may be in another table; of several that are as much alike,
/// one in the same table is meant.
fn likeness(unknown: &str, known: &str) -> Option<f64> {
    let (table, unknown) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let (known_table, known) = known.rsplit_once('.').unwrap_or(("", known));
    let by_letters = strsim::normalized_damerau_levenshtein(unknown, known);
    let by_words = shared_words(unknown, known);
    let alike = by_letters > 0.6 || by_words >= 0.5;
    let same_table = strsim::normalized_damerau_levenshtein(table, known_table);
    alike.then(|| by_letters.max(by_words) + 0.1 * by_letters + 0.1 * same_table)
}

/// The share of words that two names have in common, whole or begun (`cert`).
fn shared_words(a: &str, b: &str) -> f64 {
    let begins = |long: &str, short: &str| short.len() >= 4 && long.starts_with(short);
    let same = |a: &str, b: &str| a == b || begins(a, b) || begins(b, a);
    let shared = a.split('_').filter(|word| b.split('_').any(|other| same(word, other))).count();
    let most = a.split('_').count().max(b.split('_').count());
    shared as f64 / most as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::control::keep_from_start;

    #[test]
    fn a_name_is_suggested_only_where_one_is_like_it() {
        for (unknown, expected) in [
            ("memry", Some("memory")),
            ("timeouts.conect", Some("timeouts.connect")),
            ("conect", Some("timeouts.connect")),
            ("limit.body_bytes_max", Some("limits.body_bytes_max")),
            ("limits.max_connections", Some("limits.connections_max")),
            ("purge.tokens", Some("purge.token")),
            ("admin.tokens", Some("admin.token")),
            ("tls.cert", Some("tls.certificates")),
            ("cache_size", Some("cache")),
            ("key.cookie", Some("key.cookies")),
            ("foo", None),
            ("root", None),
            ("server", None),
            ("ttl", None),
            ("timeouts.read", None),
        ] {
            let names = KEYS.iter().map(|key| key.name);
            assert_eq!(nearest(unknown, names), expected, "{unknown}");
        }
    }

    #[test]
    fn names_are_unique_and_defaults_read_back() {
        let defaults = Settings::default();
        for (index, key) in KEYS.iter().enumerate() {
            assert!(KEYS[..index].iter().all(|other| other.name != key.name), "{}", key.name);
            assert!(!key.help.is_empty() && !key.written.is_empty());
            let shown = (key.show)(&defaults);
            if shown.starts_with('[') || key.name == "cache" {
                continue;
            }
            let mut settings = Settings::default();
            let value = Value::of_argument(shown.trim_matches('"'));
            (key.set)(&mut settings, &value).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            assert_eq!((key.show)(&settings), shown, "{}", key.name);
        }
    }

    /// Keys that are not the names of their fields: some are of the process or of a part that has
    /// limits of its own, and the rules of caching name units.
    const OTHER_NAMES: [(&str, &str); 16] = [
        ("obey_request_directives", "proxy.caching.obey_request_directives"),
        ("timeouts.stop", "stop_timeout"),
        ("upstream.eject_failures", "proxy.upstream.ejection.failures"),
        ("upstream.eject_period", "proxy.upstream.ejection.period"),
        ("caching.head_as_get", "proxy.head_as_get"),
        ("caching.heuristic_max", "proxy.caching.heuristic_lifetime_max_s"),
        ("caching.stale_while_revalidate", "proxy.caching.stale_while_revalidate_s"),
        ("caching.stale_if_error", "proxy.caching.stale_if_error_s"),
        ("caching.disconnected_stale_max", "proxy.caching.disconnected_stale_max_s"),
        ("key.query", "proxy.caching.key.query"),
        ("key.sort_query", "proxy.caching.key.sort_query"),
        ("key.headers", "proxy.caching.key.headers"),
        ("key.cookies", "proxy.caching.key.cookies"),
        ("key.show", "proxy.caching.show_key"),
        ("forward.password_checks_max", "forward.password_checks.max"),
        ("forward.password_checks_per_client_max", "forward.password_checks.per_client_max"),
    ];

    /// For each key of the proxy that takes a restart a value other than its default.
    const OTHER_VALUES: [(&str, &str); 6] = [
        ("from", "127.0.0.1:9"),
        ("workers", "1000"),
        ("listen", "unix:/a"),
        ("admin.from", "127.0.0.1:9"),
        ("limits.connections_max", "7"),
        ("limits.whole_body_bytes_max", "7KiB"),
    ];

    /// It is said of them that they take a restart.
    #[test]
    fn a_reload_keeps_what_a_start_has_set() {
        let running = Settings::default();
        let of_start = |key: &&Key| !key.live && key.field.starts_with("proxy");
        for key in KEYS.iter().filter(of_start) {
            let other = OTHER_VALUES.iter().find(|(name, _)| *name == key.name);
            let (_, other) = other.unwrap_or_else(|| panic!("{}: another value?", key.name));
            let mut new = Settings::default();
            (key.set)(&mut new, &Value::of_argument(other)).unwrap();
            assert_ne!((key.show)(&new), (key.show)(&running), "{}", key.name);
            keep_from_start(&mut new.proxy, &running.proxy);
            assert_eq!((key.show)(&new), (key.show)(&running), "{}", key.name);
        }
    }

    #[test]
    fn a_key_is_the_name_of_its_field() {
        for key in KEYS {
            let field: String = key.field.split_whitespace().collect();
            let other = OTHER_NAMES.iter().find(|(name, _)| *name == key.name);
            match other {
                Some((_, other)) => assert_eq!(field, *other),
                None => assert_eq!(field.trim_start_matches("proxy."), key.name),
            }
        }
    }

    #[test]
    fn the_nearest_key_is_found() {
        let near = |text| nearest(text, KEYS.iter().map(|key| key.name));
        assert_eq!(near("timeouts.conect"), Some("timeouts.connect"));
        assert_eq!(near("memry"), Some("memory"));
        assert_eq!(near("connections_max"), Some("limits.connections_max"));
        assert_eq!(near("limit.body_bytes_max"), Some("limits.body_bytes_max"));
        assert_eq!(near("zzzz"), None);
    }
}
