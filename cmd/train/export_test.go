package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
)

// small are the flags of a short run in a folder.
func small(dir string, more ...string) []string {
	return append([]string{"lookahead", "--steps", "4", "--batch", "1", "--tokens", "64", "--rows", "2", "--rank", "2", "--validate", "2",
		"--out", filepath.Join(dir, "adapter"), "--checkpoint", filepath.Join(dir, "state"), "--checkpoint-every", "1"}, more...)
}

func must(t *testing.T, args ...string) (out, log string) {
	t.Helper()
	out, log, err := execute(t, context.Background(), args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, log)
	}
	return out, log
}

// TestExport copies adapters of all that a user calls a run.
func TestExport(t *testing.T) {
	dir := t.TempDir()
	copied := filepath.Join(dir, "below", "copy")
	must(t, small(dir, "--export", copied)...)
	want := files(t, filepath.Join(dir, "adapter"))
	same := func(name, at string) {
		t.Helper()
		got := files(t, at)
		for file, data := range want {
			if got[file] != data {
				t.Errorf("%s: %s differs", name, file)
			}
		}
	}
	same("--export", copied)
	must(t, "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "again"))
	same("of an adapter folder", filepath.Join(dir, "again"))
	if out, _ := must(t, "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "again")); !strings.Contains(out, "was there already") {
		t.Errorf("the same export again says %q", out)
	}

	must(t, "export", filepath.Join(dir, "state"), filepath.Join(dir, "saved"))
	saved, err := checkpoints.ReadAdapter(filepath.Join(dir, "saved"))
	if err != nil {
		t.Fatal(err)
	}
	if saved.Metrics["step"] != 4 {
		t.Errorf("metrics %v of a checkpoint, want step 4", saved.Metrics)
	}
	for file, data := range files(t, filepath.Join(dir, "saved")) { // metrics apart it is the run's own adapter
		if file != checkpoints.AdapterManifest && want[file] != data {
			t.Errorf("from a checkpoint: %s differs", file)
		}
	}
	must(t, "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "pooled"), "--pooling", "3")
	if pooled, err := checkpoints.ReadAdapter(filepath.Join(dir, "pooled")); err != nil || pooled.PoolingKernel != 3 || saved.PoolingKernel == 3 {
		t.Errorf("--pooling 3: error %v, adapter %+v", err, pooled)
	}
	if _, _, err := execute(t, t.Context(), "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "even"), "--pooling", "2"); err == nil || !strings.Contains(err.Error(), "want an odd width") {
		t.Errorf("--pooling 2: error %v", err)
	}
	must(t, "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "bf16"), "--dtype", "bf16")
	must(t, "export", filepath.Join(dir, "bf16"), filepath.Join(dir, "bf16 again")) // is as it was
	for file, data := range files(t, filepath.Join(dir, "bf16")) {
		if strings.HasSuffix(file, ".safetensors") && len(data) > len(want[file])*7/10 || data != files(t, filepath.Join(dir, "bf16 again"))[file] {
			t.Errorf("--dtype bf16: %s has %d bytes of %d, or others when it is exported again", file, len(data), len(want[file]))
		}
	}
	if _, _, err := execute(t, t.Context(), "export", filepath.Join(dir, "adapter"), filepath.Join(dir, "odd"), "--dtype", "float16"); err == nil || !strings.Contains(err.Error(), `dtype: got "float16", want one of: float32, bf16`) {
		t.Errorf("--dtype float16: error %v", err)
	}
	run := filepath.Join(dir, "run")
	config := filepath.Join(dir, "c.yaml")
	text := `{tokens: 64, train: {steps: 2, batch: 1, validation: {samples: 1, every: 1}}, adapters: [
		{name: a, kind: judgeq, rows: 2, learning_rate: 0.02}, {name: b, kind: judgeq, rows: 3, learning_rate: 0.02}]}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	must(t, "run", config, "--run", run, "--export", filepath.Join(dir, "both"))
	for _, name := range []string{"a", "b"} {
		want = files(t, filepath.Join(run, "adapters", name))
		same("--export of two", filepath.Join(dir, "both", name))
	}
	must(t, "export", run, filepath.Join(dir, "one"), "--adapter", "b")
	same("one of two", filepath.Join(dir, "one"))
	must(t, "export", run, filepath.Join(dir, "two"))
	same("two", filepath.Join(dir, "two", "b"))
	if err := os.RemoveAll(filepath.Join(run, "adapters")); err != nil {
		t.Fatal(err)
	}
	must(t, "export", run, filepath.Join(dir, "best"), "--adapter", "b") // as of a run that goes on
	if a, err := checkpoints.ReadAdapter(filepath.Join(dir, "best")); err != nil || a.Metrics["best_step"] < 1 || a.Embeddings.Rows != 3 {
		t.Errorf("from the state of a run: %v, error %v", a, err)
	}

	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing there":   {[]string{filepath.Join(dir, "nowhere"), filepath.Join(dir, "x")}, "nowhere"},
		"no run":          {[]string{t.TempDir(), filepath.Join(dir, "x")}, "want an adapter folder, a checkpoint, or the folder of a run"},
		"no checkpoint":   {[]string{config, filepath.Join(dir, "x")}, "c.yaml"},
		"unknown adapter": {[]string{run, filepath.Join(dir, "x"), "--adapter", "c"}, `no adapter "c", want one of: a, b`},
		"target taken":    {[]string{filepath.Join(dir, "adapter"), filepath.Join(dir, "one")}, "exist"},
		"target no store": {[]string{filepath.Join(dir, "adapter"), "s3://"}, "want s3://BUCKET/NAME"},
	} {
		if _, _, err := execute(t, context.Background(), append([]string{"export"}, c.args...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want it to say %q", name, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed export left something (%v)", err)
	}
}

// TestS3Run: a run whose checkpoints and adapter go to a bucket, whose machine is
// lost, and that goes on elsewhere to the same bytes.
func TestS3Run(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		undisturbed := t.TempDir()
		must(t, small(undisturbed)...)
		want := files(t, filepath.Join(undisturbed, "adapter"))

		dir := t.TempDir()
		s3 := []string{"--s3-endpoint", s.URL, "--upload", "s3://test/runs/a", "--export", "s3://test/adapters/a"}
		_, log := must(t, small(dir, s3...)...)
		if !strings.Contains(log, "the checkpoint of step 4 is in s3://test/runs/a") {
			t.Errorf("the log does not name the last upload: %s", log)
		}
		settings := objectstore.Settings{Endpoint: s.URL}
		store, _, err := objectstore.Open(t.Context(), "s3://test/runs", settings)
		if err != nil {
			t.Fatal(err)
		}
		backups, err := objectstore.ListBackups(t.Context(), store, "runs/a")
		if err != nil || len(backups) > 2 || backups[0].Step != 4 {
			t.Fatalf("uploaded checkpoints %v, error %v; want the last two at most", backups, err)
		}
		a, err := objectstore.ReadAdapter(t.Context(), "s3://test/adapters/a", settings)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := checkpoints.SameAdapter(filepath.Join(undisturbed, "adapter"), a); !same || err != nil {
			t.Errorf("the exported adapter differs from that of a run without a bucket (%v)", err)
		}

		// Another machine has the bucket alone, and of it a checkpoint before the end.
		if err := store.Delete(t.Context(), backups[0].Key); err != nil {
			t.Fatal(err)
		}
		if len(backups) == 2 {
			elsewhere := t.TempDir()
			_, log = must(t, small(elsewhere, append(s3[:4:4], "--resume")...)...)
			if !strings.Contains(log, "going on after step") || !strings.Contains(log, "of s3://test/runs/a") {
				t.Errorf("the log does not say where the run goes on: %s", log)
			}
			for file, data := range files(t, filepath.Join(elsewhere, "adapter")) {
				if want[file] != data {
					t.Errorf("%s differs on the other machine", file)
				}
			}
		}
		// The newest upload, altered, is passed over or refused; never taken.
		backups, err = objectstore.ListBackups(t.Context(), store, "runs/a")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range backups {
			s.Alter(t, b.Key, 3000)
		}
		_, _, err = execute(t, context.Background(), small(t.TempDir(), append(s3[:4:4], "--resume")...)...)
		if !errors.Is(err, objectstore.ErrDamaged) {
			t.Errorf("altered checkpoints: error %v, want ErrDamaged", err)
		}

		out, _ := must(t, "export", filepath.Join(dir, "adapter"), "s3://test/adapters/a", "--s3-endpoint", s.URL)
		if !strings.Contains(out, "was there already") {
			t.Errorf("the same export again says %q", out)
		}
		must(t, "export", "s3://test/adapters/a", filepath.Join(dir, "back"), "--s3-endpoint", s.URL)
		for file, data := range files(t, filepath.Join(dir, "back")) {
			if want[file] != data {
				t.Errorf("%s differs after it went to the bucket and back", file)
			}
		}
		_, _, err = execute(t, context.Background(), small(t.TempDir(), s3...)...)
		if !errors.Is(err, objectstore.ErrExists) {
			t.Errorf("a run that would export to a name that is taken: error %v, want ErrExists before it starts", err)
		}
		if !s.Real {
			return
		}
		t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
		_, _, err = execute(t, context.Background(), small(t.TempDir(), "--s3-endpoint", s.URL, "--export", "s3://test/adapters/b")...)
		if !errors.Is(err, objectstore.ErrDenied) {
			t.Errorf("wrong secret: error %v, want ErrDenied before the run starts", err)
		}
	})
}

// TestExportToARegistry: an exported adapter is listed by its model's weights, in a folder and in a bucket, once.
func TestExportToARegistry(t *testing.T) {
	dir := t.TempDir()
	must(t, small(dir)...)
	adapter := filepath.Join(dir, "adapter")
	stored, err := checkpoints.ReadAdapter(adapter)
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, registry string, s objectstore.Settings, more ...string) {
		for range 2 { // the same again changes nothing
			must(t, append([]string{"export", adapter, registry + "/tiny/learned", "--registry", registry}, more...)...)
		}
		must(t, append([]string{"export", adapter, registry + "/tiny/smaller", "--dtype", "bf16", "--registry", registry}, more...)...)
		r, done, err := objectstore.OpenRegistry(t.Context(), registry, s)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		if len(r.Models) != 1 || len(r.Models[0].Adapters) != 1 {
			t.Fatalf("listed %+v, want one adapter", r.Models)
		}
		m := r.Models[0]
		if m.SHA256 != stored.Base.SHA256 || m.HiddenSize != 192 || m.Layers != 8 || m.Adapters[0].Path != "tiny/smaller" || m.Adapters[0].Kind != "lookaheadkv" {
			t.Errorf("listed %+v", m)
		}
		if read, err := r.ReadAdapters(&m); err != nil || !read[0].BF16 {
			t.Errorf("read %v, %v", read, err)
		}
		_, _, err = execute(t, t.Context(), append([]string{"export", adapter, registry + "/elsewhere", "--registry", registry + "/tiny"}, more...)...)
		if err == nil || !strings.Contains(err.Error(), "--registry: registry "+registry+"/tiny: the adapter is to be in "+registry+"/elsewhere, want a folder below the registry's") {
			t.Errorf("a target beside the registry: error %v", err)
		}
		if _, err := objectstore.ReadAdapter(t.Context(), registry+"/elsewhere", s); !errors.Is(err, checkpoints.ErrNotAdapter) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a refused export wrote its adapter (%v)", err)
		}
	}
	t.Run("folder", func(t *testing.T) { check(t, filepath.Join(t.TempDir(), "team"), objectstore.Settings{}) })
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		check(t, "s3://test/team", objectstore.Settings{Endpoint: s.URL}, "--s3-endpoint", s.URL)
	})
}
