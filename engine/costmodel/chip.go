package costmodel

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"glimpse/internal/bytesize"
	"glimpse/internal/registry"
	"glimpse/kernels/memcount"
)

// Chip is what a device can do at most, and how much of that is reached.
type Chip struct {
	Name      string
	FLOPS     float64 // floating-point operations per second, dense, in half precision
	Bandwidth float64 // bytes per second from its memory
	Memory    int64   // bytes; 0: not known
	// ComputeShare and MemoryShare are how much of the two is reached, 0 to 1.
	ComputeShare, MemoryShare float64
	// Attention are the floating-point operations per second that attention reaches; 0: as many as products.
	Attention float64
	// Elementwise are the bytes per second that norms and activations read and write; 0: what its memory reaches.
	Elementwise float64
	// Launch are the seconds that an operation takes besides, of work that is counted.
	Launch float64
}

// Shares of the peaks that are reached (Li 2023, as LookaheadKV, arXiv:2603.10899, app. B,
// takes them).
const (
	computeShare = 0.7
	memoryShare  = 0.9
	launch       = 2.5e-6 // seconds of a small launch in a graph
)

// H100PCIe is what tables 3 and 15 of LookaheadKV (arXiv:2603.10899) are computed for.
var H100PCIe = datasheet("h100-pcie", 756e12, 2e12, 80)

// Chips lists devices by name, with the peaks of NVIDIA's data sheets: dense products of
// BF16.
var Chips = registry.Registry[Chip]{Noun: "chip"}

func init() {
	for _, c := range []Chip{
		H100PCIe,
		datasheet("h100-sxm", 989e12, 3.35e12, 80),
		datasheet("h200", 989e12, 4.8e12, 141),
		datasheet("a100-80g", 312e12, 2.039e12, 80),
		datasheet("a100-40g", 312e12, 1.555e12, 40),
		datasheet("l40s", 362e12, 0.864e12, 48),
	} {
		Chips.Add(c.Name, c)
	}
}

func datasheet(name string, flops, bandwidth float64, gigabytes int64) Chip {
	return Chip{Name: name, FLOPS: flops, Bandwidth: bandwidth, Memory: gigabytes * 1e9, ComputeShare: computeShare, MemoryShare: memoryShare, Launch: launch}
}

// String says what the times of a chip stand on.
func (c Chip) String() string {
	text := fmt.Sprintf("%.0f%% of %.4g TFLOP/s, weights and caches read at %.0f%% of %.4g TB/s", 100*c.ComputeShare, c.FLOPS/1e12, 100*c.MemoryShare, c.Bandwidth/1e12)
	if c.Launch > 0 {
		text += fmt.Sprintf(", %.3g µs for a launch", 1e6*c.Launch)
	}
	return text
}

// ParseChip is a chip by its name in [Chips], or one by its peaks as
// "flops=312e12,bandwidth=2.0e12,memory=80GB", where memory may be left out.
func ParseChip(text string) (Chip, error) {
	if !strings.Contains(text, "=") {
		return Chips.Lookup(text)
	}
	c := Chip{Name: text, ComputeShare: computeShare, MemoryShare: memoryShare}
	for field := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		var err error
		switch key {
		case "flops":
			c.FLOPS, err = positive(value)
		case "bandwidth":
			c.Bandwidth, err = positive(value)
		case "memory":
			c.Memory, err = bytesize.Parse(value)
		default:
			err = fmt.Errorf("unknown key, want flops, bandwidth or memory")
		}
		if err != nil {
			return Chip{}, fmt.Errorf("chip %q: %s: %w", text, key, err)
		}
	}
	if c.FLOPS == 0 || c.Bandwidth == 0 {
		return Chip{}, fmt.Errorf("chip %q: want flops=… and bandwidth=…, per second", text)
	}
	return c, nil
}

func positive(text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0 && v <= 1e30) {
		return 0, fmt.Errorf("got %q, want a positive number per second", text)
	}
	return v, nil
}

// binary is the chip with tera and giga read as 2⁴⁰ and 2³⁰, as the paper's tables have it.
func (c Chip) binary() Chip {
	c.FLOPS *= (1 << 40) / 1e12
	c.Bandwidth *= (1 << 40) / 1e12
	return c
}

// operation is the cost of one that computes and moves so much.
func (c Chip) operation(flops, bytes float64) Cost {
	return Cost{flops, bytes, max(flops/(c.FLOPS*c.ComputeShare), bytes/(c.Bandwidth*c.MemoryShare))}
}

// Cost is the cost of work that was counted, of one operation after the other.
func (c Chip) Cost(w memcount.Work) (total Cost) {
	order := func(a, b memcount.Operation) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.FLOPs, b.FLOPs), cmp.Compare(a.Bytes, b.Bytes))
	}
	for _, o := range slices.SortedFunc(maps.Keys(w), order) { // sums have an order
		one := c.operation(o.FLOPs, o.Bytes)
		switch {
		case o.Kind == memcount.Attention && c.Attention > 0:
			one.Seconds = max(o.FLOPs/c.Attention, o.Bytes/(c.Bandwidth*c.MemoryShare))
		case o.Kind == memcount.Elementwise && c.Elementwise > 0:
			one.Seconds = o.Bytes / c.Elementwise
		}
		total = total.plus(Cost{w[o] * one.FLOPs, w[o] * one.Bytes, w[o] * (one.Seconds + c.Launch)})
	}
	return total
}

// Cost is what operations compute and move, and the seconds that they take one after the
// other.
type Cost struct {
	FLOPs   float64 `json:"flops"`
	Bytes   float64 `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func (c Cost) plus(others ...Cost) Cost {
	for _, o := range others {
		c = Cost{c.FLOPs + o.FLOPs, c.Bytes + o.Bytes, c.Seconds + o.Seconds}
	}
	return c
}

func (c Cost) minus(o Cost) Cost {
	return Cost{c.FLOPs - o.FLOPs, c.Bytes - o.Bytes, c.Seconds - o.Seconds}
}
