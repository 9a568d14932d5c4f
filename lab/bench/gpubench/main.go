// Command gpubench measures the CUDA backend with random weights in a model's shape, part
// by part, and renders the results as the section "Measured" of lab/results/gpu.md.
// lab/bench/bench_gpu.sh runs it; it needs no files but itself.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"glimpse/internal/atomicfile"
	"glimpse/internal/registry"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"

	"github.com/spf13/cobra"

	_ "glimpse/lora"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "gpubench: %v\n", err)
		os.Exit(1)
	}
}

// part is a measurement that takes a call of its own.
type part struct {
	doc string
	run func(ctx context.Context, b *bench, out *result) error
}

// parts are all measurements, one file each.
var parts = registry.Registry[part]{Noun: "part"}

// order is that of a whole run: correctness first, then what others are judged by.
var order = []string{"tests", "models", "ceilings", "kernels", "prefill", "ttft", "decode", "train", "train24", "batch"}

// result is what a part has measured, with what is needed to read it.
type result struct {
	Part     string  `json:"part"`
	Date     string  `json:"date"`
	Hardware bool    `json:"hardware"` // false: the host driver, whose times say nothing
	Device   string  `json:"device"`
	Driver   string  `json:"driver"`
	Memory   int64   `json:"memory_bytes"`
	Model    string  `json:"model"`
	Cache    string  `json:"cache"` // type of keys and values
	Seconds  float64 `json:"seconds"`
	Peak     int64   `json:"peak_bytes"` // device memory that the program held at most
	Error    string  `json:"error,omitempty"`
	// Unverified is what the kernels' tests lacked on this driver; empty where they passed.
	Unverified string `json:"unverified,omitempty"`

	Tests    *testsResult `json:"tests,omitempty"`
	Ceilings *ceilings    `json:"ceilings,omitempty"`
	Kernels  []kernelRow  `json:"kernels,omitempty"`
	Prefill  []prefillRow `json:"prefill,omitempty"`
	TTFT     []ttftRow    `json:"ttft,omitempty"`
	Decode   []decodeRow  `json:"decode,omitempty"`
	Train    []trainRow   `json:"train,omitempty"`
	Limited  *trainRow    `json:"limited,omitempty"`
	Batch    []batchRow   `json:"batch,omitempty"`
}

// bench is what the parts share.
type bench struct {
	device, out string
	tiny        bool
	repeats     int
	limit       time.Duration // of one part
	memory      string        // of the part batch
	cacheDType  string
	binaries    string // folder of the test binaries
	eachTest    string // lab/gpu/each_test.sh

	sizes sizes
	meter kernels.Backend
	start time.Time
}

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "gpubench", Short: "Measure the CUDA backend"}
	b := &bench{}
	for name, p := range parts.All() {
		root.AddCommand(&cobra.Command{
			Use: name, Short: p.doc, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return b.measure(cmd.Context(), name, p) },
		})
	}
	root.AddCommand(newRender(), &cobra.Command{
		Use: "parts", Short: "list the parts in the order of a whole run", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			for _, name := range order {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
		},
	})
	f := root.PersistentFlags()
	f.StringVar(&b.out, "out", "", "folder for the results")
	f.StringVar(&b.device, "device", "cuda:0", "device to measure")
	f.BoolVar(&b.tiny, "tiny", false, "a tiny model and short prompts, to try the measurements themselves")
	f.IntVar(&b.repeats, "repeats", 5, "repetitions of which the median counts")
	f.DurationVar(&b.limit, "limit", 7*time.Minute, "time after which a part begins nothing more")
	f.StringVar(&b.memory, "memory", "", "device memory of the part batch; empty is 80GB, as in the paper")
	f.StringVar(&b.cacheDType, "cache-dtype", "auto", "type of keys and values")
	f.StringVar(&b.binaries, "binaries", ".", "folder of the test binaries")
	f.StringVar(&b.eachTest, "each-test", "lab/gpu/each_test.sh", "script that runs every test in a process of its own")
	return root
}

// measure runs one part and writes its result.
func (b *bench) measure(ctx context.Context, name string, p part) error {
	if b.out == "" {
		return fmt.Errorf("--out: missing, want a folder for the results")
	}
	if b.repeats < 1 {
		return fmt.Errorf("--repeats: got %d, want at least 1", b.repeats)
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return err
	}
	if b.sizes = full; b.tiny {
		b.sizes = tiny
	}
	b.start = time.Now()
	out := &result{Part: name, Date: b.start.UTC().Format(time.DateOnly), Model: b.sizes.name}
	if err := b.open(out); err != nil {
		return err
	}
	err := func() (err error) {
		defer kernels.CatchDevice(&err)
		return p.run(ctx, b, out)
	}()
	if err != nil {
		out.Error = err.Error() // what was measured before counts
	}
	if out.Tests == nil {
		var readErr error
		if out.Unverified, readErr = unverified(b.out); readErr != nil {
			return readErr
		}
	}
	out.Seconds = time.Since(b.start).Seconds()
	if b.meter != nil {
		out.Peak = max(out.Peak, b.peak())
	}
	data, marshalErr := json.MarshalIndent(out, "", "  ")
	if marshalErr != nil {
		return marshalErr
	}
	path := filepath.Join(b.out, name+".json")
	if err := atomicfile.WriteFile(path, append(data, '\n')); err != nil {
		return err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Printf("%s: %.1f s, result in %s\n", name, out.Seconds, path)
	return nil
}

// peak is 0 where the device is lost.
func (b *bench) peak() (bytes int64) {
	var lost error
	defer kernels.CatchDevice(&lost)
	return b.meter.Memory().Peak
}

// open opens the device and describes it.
func (b *bench) open(out *result) error {
	backend, err := kernels.Open(b.device)
	if err != nil {
		return err
	}
	if b.meter = backend; !backend.OwnMemory() {
		return fmt.Errorf("device %s: measures nothing, want cuda:N", b.device)
	}
	report := kernels.Devices()
	out.Device, out.Driver, out.Memory = b.meter.Model(), report.Driver+", CUDA "+report.Version, b.meter.Memory().Total
	for _, l := range report.Libraries {
		out.Driver += fmt.Sprintf(", %s %s (%s)", l.Name, l.Version, l.Path)
	}
	out.Hardware = os.Getenv("GLIMPSE_CUDA_DRIVER") == "" || filepath.Base(os.Getenv("GLIMPSE_CUDA_DRIVER")) == "libcuda.so.1"
	return nil
}

// model makes the model with random weights, on the device.
func (b *bench) model(out *result) (*model.Model, error) {
	folder, err := os.MkdirTemp("", "gpubench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(b.sizes.config), 0o644); err != nil {
		return nil, err
	}
	shapes, err := model.OpenShapes(folder, b.device)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	m := modeltest.WithDummyWeights(shapes, shapes.Config.Layers, shapes.Config.Vocab)
	m.Backend.Wait()
	if err := m.SetCacheDType(b.cacheDType); err != nil {
		return nil, err
	}
	out.Cache = m.CacheDType().String()
	fmt.Printf("%s: random weights of %.2f GB after %.1f s\n", b.sizes.name, float64(m.WeightBytes())/1e9, time.Since(start).Seconds())
	return m, nil
}

// late tells that the part has used its time.
func (b *bench) late() bool { return time.Since(b.start) > b.limit }

// median is the time of f on the device: the median after one call that warms up, which
// counts by itself where it took so long that there is no time for more.
func (b *bench) median(ctx context.Context, f func() error) (milliseconds float64, err error) {
	var times []float64
	for i := range b.repeats + 1 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b.settle()
		d, err := b.meter.Time(f)
		if err != nil {
			return 0, err
		}
		slow := d > b.limit/20 || b.late()
		if i > 0 || slow {
			times = append(times, float64(d)/float64(time.Millisecond))
		}
		if slow {
			break
		}
	}
	return middle(times), nil
}

// settle collects the garbage of what came before, so that none is collected within what
// is timed.
func (b *bench) settle() { b.meter.Memory() }

func middle(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)/2]
}

// tokens are prompt tokens that do not repeat soon.
func tokens(m *model.Model, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*7919 + 13) % m.Config.Vocab)
	}
	return ids
}
