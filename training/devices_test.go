package training_test

import (
	"context"
	"path/filepath"
	"testing"

	"glimpse/model/modeltest"
	"glimpse/training"
)

// TestTrainingOverSeveralDevices: adapters that are trained on a model whose layers are on
// several devices have the bytes of those trained on one, with prompts of several chunks,
// samples that come back from memory and from disk, and a checkpoint that one of them has left
// for the other.
func TestTrainingOverSeveralDevices(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	one, several := shallow(t), modeltest.OpenShallow(t, "cpu,cpu,cpu", 3)
	if len(several.Devices()) != 3 {
		t.Fatalf("the model is on %s", several.DeviceName())
	}
	config := both(6)
	config.CacheMemory, config.CacheDisk, config.Batch = 2<<20, 1<<30, 2
	data := func() training.Source { return pairs(t, one, 3, 640) }
	want, losses := run(t, one, config, data())
	got, otherLosses := run(t, several, config, data())
	if !sameBits(got, want) {
		t.Errorf("parameters on several devices have other bits")
	}
	for i, loss := range losses {
		if otherLosses[i] != loss {
			t.Fatalf("loss %d is %v on several devices, %v on one", i, otherLosses[i], loss)
		}
	}

	path := filepath.Join(t.TempDir(), "state")
	first, err := training.New(one, config, data())
	if err != nil {
		t.Fatal(err)
	}
	stop := context.Canceled
	err = first.Run(context.Background(), func(r training.StepResult) error {
		if r.Step < 3 {
			return nil
		}
		if err := first.Save(path, "hash"); err != nil {
			t.Fatal(err)
		}
		return stop
	})
	if first.Close(); err != stop {
		t.Fatal(err)
	}
	second, err := training.New(several, config, data())
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Resume(path, "hash"); err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	got = nil
	for i := range config.Adapters {
		for _, p := range second.Adapter(i).Parameters() {
			got = append(got, p.Tensor.Float32s()...)
		}
	}
	if !sameBits(got, want) {
		t.Errorf("a run that goes on elsewhere from its checkpoint ends with other bits")
	}
}
