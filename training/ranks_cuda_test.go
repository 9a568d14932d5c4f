//go:build gpu && linux && (amd64 || arm64)

package training_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"glimpse/internal/collective"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// onDevices are n models, each on a CUDA device of its own.
func onDevices(t *testing.T, n int) (out []*model.Model) {
	t.Helper()
	modeltest.NeedCUDA(t)
	t.Setenv("HOSTCUDA_DEVICES", fmt.Sprint(n))
	if have := len(kernels.Devices().Devices); have < n {
		t.Skipf("%d devices, want %d", have, n)
	}
	for i := range n {
		out = append(out, modeltest.OpenShallow(t, fmt.Sprintf("cuda:%d", i), 3))
	}
	return out
}

// tiny is a run of one adapter whose batch no number of ranks but 1 divides.
func tiny() training.Config {
	c := small(1)
	c.Batch, c.MaxResponse, c.Adapters = 3, 2, c.Adapters[:1]
	c.Adapters[0].Rows, c.Validation.Every, c.Validation.Samples = 2, 0, 0
	return c
}

// TestCUDARanksHaveTheBitsOfOneProcess: gradients that go from device to device by NCCL give the
// bits of one process, and so do those of ranks that share a device, which go through the host.
func TestCUDARanksHaveTheBitsOfOneProcess(t *testing.T) {
	models := onDevices(t, 4)
	c := tiny()
	source := func() training.Source { return stream(t, 40) }
	want, _ := run(t, models[0], c, source())
	for _, w := range []struct {
		name   string
		models []*model.Model
		says   string
	}{
		{"2 devices", models[:2], "gradients go from device to device by NCCL "},
		{"4 devices", models, "gradients go from device to device by NCCL "},
		{"one device", []*model.Model{models[1], models[1]}, "gradients go through the host and MPI: ranks 0 and 1 share cuda:1"},
	} {
		t.Run(w.name, func(t *testing.T) {
			said := make([]string, len(w.models))
			for rank, got := range onRanksOf(t, w.models, c, source, func(tr *training.Trainer, g collective.Group) error {
				tr.Notice = func(text string) { said[g.Rank()] += text + "\n" }
				return nil
			}, nil) {
				if got.err != nil {
					t.Fatalf("rank %d: %v", rank, got.err)
				}
				if !sameBits(got.params, want) {
					t.Errorf("rank %d has other parameters than one process", rank)
				}
				if says := rank == 0 && strings.Count(said[0], w.says) == 1; says != (rank == 0) || rank > 0 && said[rank] != "" {
					t.Errorf("rank %d said %q, want %q of rank 0 alone", rank, said[rank], w.says)
				}
			}
		})
	}
}

// TestCUDARanksEndTogether: where NCCL fails on one rank all end, and the others name it.
func TestCUDARanksEndTogether(t *testing.T) {
	if !strings.Contains(os.Getenv("GLIMPSE_NCCL"), "hostcuda") {
		t.Skip("not on the host driver")
	}
	models := onDevices(t, 2)
	t.Setenv("HOSTCUDA_NCCL", "1:ncclSend")
	start := time.Now()
	for rank, got := range onRanksOf(t, models, tiny(), func() training.Source { return stream(t, 40) }, nil, nil) {
		if got.err == nil || !strings.Contains(got.err.Error(), "ncclSend and ncclRecv: unhandled cuda error") || rank != 1 && !strings.Contains(got.err.Error(), "rank 1 (") {
			t.Errorf("rank %d: %v", rank, got.err)
		}
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
}
