/* The bound of any reader on libsystemd: message, pid and time of every entry of a folder. */
#include <stdint.h>
#include <stdio.h>
#include <systemd/sd-journal.h>

int main(int argc, char **argv) {
    sd_journal *journal;
    const void *data;
    size_t size, bytes = 0;
    uint64_t time, count = 0;
    if (argc != 2 || sd_journal_open_directory(&journal, argv[1], 0) < 0)
        return 2;
    sd_journal_set_data_threshold(journal, 0);
    while (sd_journal_next(journal) > 0) {
        if (sd_journal_get_data(journal, "MESSAGE", &data, &size) >= 0)
            bytes += size;
        if (sd_journal_get_data(journal, "_PID", &data, &size) >= 0)
            bytes += size;
        if (sd_journal_get_realtime_usec(journal, &time) >= 0)
            count++;
    }
    printf("%lu entries, %zu bytes\n", (unsigned long)count, bytes);
    return 0;
}
