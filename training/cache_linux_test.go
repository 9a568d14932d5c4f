package training_test

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/training"

	"golang.org/x/sys/unix"
)

// TestSampleCacheOnABrokenDisk: the disk of the sample cache is optional. A run whose
// disk fills up, or loses what was written, comes to its end with the same bits and says
// so once.
func TestSampleCacheOnABrokenDisk(t *testing.T) {
	m := shallow(t)
	want, _ := run(t, m, both(6), pairs(t, m, 5, 512))
	for name, disturb := range map[string]func(t *testing.T, dir string, step int){
		"no folder": func(t *testing.T, dir string, step int) {
			if step == 0 {
				os.RemoveAll(dir)
			}
		},
		"full": func(t *testing.T, dir string, step int) {
			if step != 0 {
				return
			}
			var old unix.Rlimit
			if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
				t.Fatal(err)
			}
			signal.Ignore(unix.SIGXFSZ) // so that the write returns an error; the log of "go test" stays below it
			if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 700 << 10, Max: old.Max}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
				signal.Reset(unix.SIGXFSZ)
			})
		},
		"lost": func(t *testing.T, dir string, step int) {
			if step < 2 {
				return
			}
			files, err := filepath.Glob(filepath.Join(dir, "*", "*"))
			if err != nil || step == 2 && len(files) == 0 {
				t.Fatalf("no samples on disk (%v)", err)
			}
			for _, f := range files {
				os.Truncate(f, 100)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			config := both(6)
			config.CacheDisk = 1 << 30
			disturb(t, dir, 0)
			tr, err := training.New(m, config, pairs(t, m, 5, 512))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			var told []string
			tr.Notice = func(text string) { told = append(told, text) } // under the cache's lock
			err = tr.Run(context.Background(), func(r training.StepResult) error {
				disturb(t, dir, r.Step)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []float32
			for i := range config.Adapters {
				for _, p := range tr.Adapter(i).Parameters() {
					got = append(got, p.Tensor.Float32s()...)
				}
			}
			if !sameBits(got, want) {
				t.Error("other parameters than without a cache")
			}
			if len(told) != 1 || !strings.HasPrefix(told[0], "sample cache: ") {
				t.Errorf("told %q, want once that the sample cache failed", told)
			}
		})
	}
}
