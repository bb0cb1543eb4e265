//! The dashboard's hand-made rows of panels, most important first. For tests only.

use super::Drawn::{Now, Quantile, Rate, RateOf, Ratio, Saved};
use super::Panel;

/// Titles of rows, and their panels.
pub(super) const ROWS: &[(&str, &[Panel])] = &[
    (
        "Traffic",
        &[
            Panel(
                "Requests",
                "reqps",
                &[
                    (Rate("damelo_proxy_requests", ""), "all"),
                    (Rate("damelo_proxy_hits", ""), "from the cache"),
                    (Rate("damelo_proxy_forwarded", ""), "to origins"),
                ],
            ),
            Panel(
                "Versions of HTTP",
                "reqps",
                &[(Rate("damelo_proxy_requests_by_version", "version"), "{{version}}")],
            ),
            Panel(
                "Hit ratio",
                "percentunit",
                &[
                    (
                        Ratio(&Rate("damelo_proxy_hits", ""), &Rate("damelo_proxy_requests", "")),
                        "of requests",
                    ),
                    (
                        Saved(
                            &Rate("damelo_proxy_origin_body_bytes", ""),
                            &Rate("damelo_proxy_client_body_bytes", ""),
                        ),
                        "of bytes",
                    ),
                ],
            ),
            Panel(
                "Time to the answer's headers, hits",
                "s",
                &[
                    (Quantile("0.5", "from=\"store\"", "damelo_proxy_latency_seconds"), "half"),
                    (Quantile("0.99", "from=\"store\"", "damelo_proxy_latency_seconds"), "99%"),
                ],
            ),
            Panel(
                "Time to the answer's headers, misses",
                "s",
                &[
                    (Quantile("0.5", "from=\"origin\"", "damelo_proxy_latency_seconds"), "half"),
                    (Quantile("0.99", "from=\"origin\"", "damelo_proxy_latency_seconds"), "99%"),
                ],
            ),
            Panel(
                "Bytes of bodies to clients",
                "Bps",
                &[(Rate("damelo_proxy_client_body_bytes", "from"), "{{from}}")],
            ),
            Panel(
                "Answers by class",
                "reqps",
                &[(Rate("damelo_proxy_responses", "class"), "{{class}}")],
            ),
            Panel(
                "Connections and requests now",
                "short",
                &[
                    (Now("sum", "", "damelo_proxy_connections_open"), "connections"),
                    (Now("sum", "", "damelo_proxy_requests_open"), "requests"),
                    (
                        Now("sum", "", "damelo_proxy_collapsed_waiting"),
                        "waiting for another's fetch",
                    ),
                ],
            ),
            Panel(
                "Not stored, by reason",
                "reqps",
                &[(Rate("damelo_proxy_not_stored", "reason"), "{{reason}}")],
            ),
        ],
    ),
    (
        "Origins",
        &[
            Panel(
                "Ends of certificates, in seconds since 1970",
                "none",
                &[(Now("min", "name", "damelo_proxy_certificate_expires_seconds"), "{{name}}")],
            ),
            Panel(
                "Healthy",
                "short",
                &[(Now("min", "origin", "damelo_proxy_origin_healthy"), "{{origin}}")],
            ),
            Panel(
                "Requests now",
                "short",
                &[(Now("sum", "origin", "damelo_proxy_origin_requests_open"), "{{origin}}")],
            ),
            Panel(
                "Trouble",
                "ops",
                &[
                    (Rate("damelo_proxy_origin_errors", "reason"), "no answer: {{reason}}"),
                    (Rate("damelo_proxy_origin_checks_failed", ""), "checks failed"),
                    (Rate("damelo_proxy_origin_failovers", ""), "asked another"),
                    (Rate("damelo_proxy_origin_resends", ""), "sent once more"),
                    (Rate("damelo_proxy_stale_on_error", ""), "stale answers instead"),
                    (Rate("damelo_proxy_stale_on_arrival", ""), "stale when they came"),
                ],
            ),
            Panel(
                "Work saved",
                "ops",
                &[
                    (Rate("damelo_proxy_collapsed", ""), "waited for another's fetch"),
                    (Rate("damelo_proxy_revalidated", ""), "validated by 304"),
                    (Rate("damelo_proxy_validated_behind", ""), "validated behind"),
                ],
            ),
        ],
    ),
    (
        "Memory and disk",
        &[
            Panel(
                "Reads answered by the store",
                "ops",
                &[
                    (Rate("damelo_hits", "from"), "{{from}}"),
                    (Rate("damelo_misses", ""), "not at all"),
                ],
            ),
            Panel(
                "Disk reads for each read answered",
                "short",
                &[(
                    Ratio(
                        &RateOf("damelo_disk_reads", "unit!=\"maintenance\""),
                        &Rate("damelo_hits", ""),
                    ),
                    "reads",
                )],
            ),
            Panel(
                "Time of disk reads and writes, 99%",
                "s",
                &[
                    (Quantile("0.99", "", "damelo_disk_read_seconds"), "read"),
                    (Quantile("0.99", "", "damelo_disk_write_seconds"), "write"),
                ],
            ),
            Panel(
                "Device",
                "Bps",
                &[
                    (Rate("damelo_device_read_bytes", "volume"), "read {{volume}}"),
                    (Rate("damelo_device_write_bytes", "volume"), "written {{volume}}"),
                ],
            ),
            Panel(
                "Memory",
                "bytes",
                &[
                    (Now("sum", "", "damelo_memory_bytes"), "declared for data"),
                    (Now("sum", "", "damelo_memory_used_bytes"), "used for data"),
                    (Now("sum", "", "damelo_index_bytes"), "index"),
                    (Now("sum", "", "process_resident_memory_bytes"), "process"),
                ],
            ),
            Panel(
                "Write amplification",
                "short",
                &[(
                    Now("max", "", "damelo_write_amplification"),
                    "bytes written for each new one, in all",
                )],
            ),
            Panel(
                "Objects",
                "short",
                &[
                    (Now("sum", "", "damelo_index_objects"), "on disk"),
                    (Now("sum", "", "damelo_resident_objects"), "in memory"),
                    (Now("sum", "", "damelo_index_slots"), "slots of the index"),
                ],
            ),
            Panel(
                "Forgotten and not stored",
                "ops",
                &[
                    (Rate("damelo_evictions", "reason"), "forgotten: {{reason}}"),
                    (Rate("damelo_drops", "reason"), "not stored: {{reason}}"),
                ],
            ),
        ],
    ),
    (
        "Trouble",
        &[
            Panel(
                "Disk",
                "ops",
                &[
                    (Rate("damelo_device_read_errors", ""), "reads failed"),
                    (Rate("damelo_device_write_errors", ""), "writes failed"),
                    (Rate("damelo_device_sync_errors", ""), "syncs failed"),
                    (Rate("damelo_damaged_records", ""), "damaged records"),
                    (Now("sum", "", "damelo_damaged_superblocks"), "damaged superblocks"),
                    (Rate("damelo_journal_errors", ""), "journal writes failed"),
                    (Rate("damelo_checkpoint_errors", ""), "checkpoints failed"),
                    (Now("sum", "", "damelo_volumes_out"), "volumes out of service"),
                ],
            ),
            Panel(
                "Waits for memory",
                "ops",
                &[
                    (Rate("damelo_create_waits", ""), "creates"),
                    (Rate("damelo_writer_waits", ""), "pieces of streams"),
                    (Rate("damelo_read_waits", ""), "reads"),
                    (Rate("damelo_reads_queued", ""), "awaited reads in turn"),
                    (Rate("damelo_reads_refused", ""), "reads refused"),
                ],
            ),
            Panel(
                "Clients",
                "ops",
                &[
                    (Rate("damelo_proxy_client_timeouts", ""), "too slow"),
                    (Rate("damelo_proxy_connections_refused", ""), "connections refused"),
                    (Rate("damelo_proxy_tls_failures", ""), "TLS handshakes failed"),
                    (Rate("damelo_proxy_http2_cancels_exceeded", ""), "cancelled too much"),
                    (Rate("damelo_proxy_own_errors", ""), "answered 4xx or 5xx by the proxy"),
                ],
            ),
            Panel(
                "Process",
                "short",
                &[
                    (Rate("process_cpu_seconds", ""), "processors busy"),
                    (Now("sum", "", "process_open_fds"), "files and sockets open"),
                ],
            ),
        ],
    ),
];
