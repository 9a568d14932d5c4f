package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/atomicfile"

	"github.com/spf13/cobra"
)

// The measured section of lab/results/gpu.md lies between these lines.
const (
	begin = "<!-- measured -->"
	end   = "<!-- end of measured -->"
)

// peer is what lab/bench/bench_gpu_pytorch.py writes.
type peer struct {
	Skipped  string   `json:"skipped"`
	Version  string   `json:"version"`
	Hardware bool     `json:"hardware"`
	Ceilings ceilings `json:"ceilings"`
	Prefill  []struct {
		Tokens int     `json:"tokens"`
		Millis float64 `json:"ms"`
		Error  string  `json:"error"`
	} `json:"prefill"`
	Attention []struct {
		Tokens int     `json:"tokens"`
		Kernel string  `json:"kernel"` // as SDPBackend has it
		Millis float64 `json:"ms"`
		Error  string  `json:"error"`
	} `json:"attention"`
	Train []struct {
		Prompt int     `json:"prompt"`
		Way    string  `json:"way"`
		Millis float64 `json:"ms"`
		Peak   int64   `json:"peak_bytes"`
		Error  string  `json:"error"`
	} `json:"train"`
}

func newRender() *cobra.Command {
	var results, doc, command string
	cmd := &cobra.Command{
		Use: "render", Short: "write the measured section of a document", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := readReport(results)
			if err != nil {
				return err
			}
			r.command = command
			text, err := r.markdown()
			if err != nil {
				return err
			}
			if doc == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			old, err := os.ReadFile(doc)
			if errors.Is(err, fs.ErrNotExist) {
				old, err = []byte(begin+"\n"+end+"\n"), nil
			}
			if err != nil {
				return err
			}
			anew, err := replaceSection(old, text)
			if err != nil {
				return fmt.Errorf("%s: %w", doc, err)
			}
			return atomicfile.Write(doc, func(w io.Writer) error { _, err := w.Write(anew); return err })
		},
	}
	cmd.Flags().StringVar(&results, "results", "", "folder of the parts' results")
	cmd.Flags().StringVar(&doc, "doc", "", "document whose section is replaced; without it the section is printed")
	cmd.Flags().StringVar(&command, "command", "make bench-gpu", "command that the section names")
	return cmd
}

// replaceSection puts text between the two lines.
func replaceSection(doc, text []byte) ([]byte, error) {
	head, rest, ok := bytes.Cut(doc, []byte(begin+"\n"))
	_, tail, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return nil, fmt.Errorf("no lines %q and %q, want one of each", begin, end)
	}
	return bytes.Join([][]byte{head, []byte(begin + "\n"), text, []byte(end), tail}, nil), nil
}

// report is all results of a folder.
type report struct {
	results map[string]*result
	peer    peer // empty where PyTorch was not run
	command string
}

func readReport(folder string) (*report, error) {
	r := &report{results: make(map[string]*result)}
	for _, name := range order {
		out := &result{}
		ok, err := readJSON(filepath.Join(folder, name+".json"), out)
		if err != nil {
			return nil, err
		}
		if ok {
			r.results[name] = out
		}
	}
	if len(r.results) == 0 {
		return nil, fmt.Errorf("%s: no results, want %s.json and so on", folder, order[0])
	}
	if _, err := readJSON(filepath.Join(folder, "pytorch.json"), &r.peer); err != nil {
		return nil, err
	}
	if r.peer.Version != "" && r.peer.Skipped == "" && !r.peer.Hardware && !r.tiny() {
		r.peer = peer{Skipped: "its results are those of another device"}
	}
	return r, nil
}

func readJSON(path string, v any) (ok bool, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, v)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	return true, nil
}

// of is a part's result, an empty one where it has not run.
func (r *report) of(part string) *result {
	if out := r.results[part]; out != nil {
		return out
	}
	return &result{}
}

// ceiling is the better of what we and PyTorch have measured; 0: nothing.
func (r *report) ceiling(of func(c *ceilings) float64) float64 {
	best := 0.0
	if c := r.of("ceilings").Ceilings; c != nil {
		best = of(c)
	}
	return max(best, of(&r.peer.Ceilings))
}

func (r *report) bandwidth() float64 {
	return r.ceiling(func(c *ceilings) float64 { return c.CopyGBs })
}
func (r *report) product() float64 {
	return r.ceiling(func(c *ceilings) float64 { return c.ProductTFLOPs })
}

// torchPrefill and torchStep are PyTorch's times, 0 where there is none; of the step the
// better of the two ways.
func (r *report) torchPrefill(n int) float64 {
	for _, row := range r.peer.Prefill {
		if row.Tokens == n {
			return row.Millis
		}
	}
	return 0
}

// torchAttention is the time of PyTorch's fastest kernel for the attention of a prompt, and its name; 0 where there
// is none.
func (r *report) torchAttention(n int) (best float64, kernel string) {
	for _, row := range r.peer.Attention {
		if row.Tokens == n && row.Millis > 0 && (best == 0 || row.Millis < best) {
			best, kernel = row.Millis, row.Kernel
		}
	}
	return best, kernel
}

func (r *report) torchStep(n int) (best float64) {
	for _, row := range r.peer.Train {
		if row.Prompt == n && row.Millis > 0 && (best == 0 || row.Millis < best) {
			best = row.Millis
		}
	}
	return best
}

// bar is a goal of the project.
type bar struct {
	what     string
	want     string
	got      string
	measured bool
	met      bool
}

func (b bar) verdict() string {
	switch {
	case !b.measured:
		return "not measured"
	case b.met:
		return "met"
	}
	return "**missed**"
}

// share of x in y for a bar: 0 where either is missing.
func share(x, y float64) float64 {
	if x <= 0 || y <= 0 {
		return 0
	}
	return x / y
}

// bars holds the results against the goals.
func (r *report) bars() []bar {
	var out []bar
	atLeast := func(what string, want, got float64, format string, scale float64) {
		out = append(out, bar{what, "≥ " + fmt.Sprintf(format, want*scale), fmt.Sprintf(format, got*scale), got > 0, got >= want})
	}
	atMost := func(what string, want, got float64, measured bool, format string, scale float64) {
		out = append(out, bar{what, "≤ " + fmt.Sprintf(format, want*scale), fmt.Sprintf(format, got*scale), measured, got <= want})
	}
	for _, row := range r.of("prefill").Prefill {
		if row.Chunk > 0 || row.Tokens < 8192 && !r.tiny() {
			continue
		}
		atLeast(fmt.Sprintf("prefill at %d: share of the measured bf16 product", row.Tokens), 0.6, share(row.TFLOPs, r.product()), "%.1f%%", 100)
		atLeast(fmt.Sprintf("prefill at %d: PyTorch's time over ours", row.Tokens), 1, share(r.torchPrefill(row.Tokens), row.Millis), "%.2f", 1)
	}
	for _, row := range r.of("kernels").Kernels {
		if best, _ := r.torchAttention(row.Prompt); row.Prompt >= 8192 || r.tiny() && row.Prompt > 0 {
			atLeast(fmt.Sprintf("attention of a prompt of %d: the better of FlashAttention's and cuDNN's time over ours", row.Prompt), 1/1.1, share(best, row.Millis), "%.2f", 1)
		}
	}
	for i, n := range r.sizes().ttft {
		want := []float64{0.02, 0.01}[min(i, 1)]
		got, measured := 0.0, false
		for _, row := range r.of("ttft").TTFT {
			if row.Tokens == n && row.Policy == "lookaheadkv" && row.Missing == "" {
				got, measured = row.Over, true
			}
		}
		atMost(fmt.Sprintf("LookaheadKV's overhead on the time to first token at %d", n), want, got, measured, "%.2f%%", 100)
	}
	for _, row := range r.of("train").Train {
		if want := map[int]float64{8192: 1.20, 16384: 1.15}[row.Prompt]; want > 0 || r.tiny() {
			atMost(fmt.Sprintf("training step over prefill at %d, %d response tokens", row.Prompt, row.Response), want, share(row.Step, row.Prefill), row.Step > 0, "%.3f", 1)
		}
		atLeast(fmt.Sprintf("training step at %d: PyTorch's time over ours", row.Prompt), 2, share(r.torchStep(row.Prompt), row.Step), "%.2f", 1)
	}
	for _, row := range r.of("decode").Decode {
		atLeast(fmt.Sprintf("decoding at %d, %s: share of reading weights and cache once", row.Context, budgetName(row.Budget)), 0.8, r.decodeShare(row), "%.1f%%", 100)
	}
	limited := bar{what: fmt.Sprintf("training at %d tokens fits in %s", r.sizes().limited, r.sizes().limit), want: "it runs", got: "–"}
	if l := r.of("train24").Limited; l != nil {
		limited.measured, limited.met = true, l.Error == ""
		limited.got = fmt.Sprintf("%.2f GB at most", float64(l.Peak)/1e9)
		if l.Error != "" {
			limited.got = "not enough memory"
		}
	}
	return append(out, limited)
}

func (r *report) tiny() bool {
	for _, out := range r.results {
		return out.Model == tiny.name
	}
	return false
}

func (r *report) sizes() sizes {
	if r.tiny() {
		return tiny
	}
	return full
}

func (r *report) decodeShare(row decodeRow) float64 {
	return share(row.Rate*float64(row.Bytes)/1e9, r.bandwidth())
}

func budgetName(n int) string {
	if n == 0 {
		return "full cache"
	}
	return fmt.Sprintf("budget %d", n)
}

// markdown is the section.
func (r *report) markdown() ([]byte, error) {
	w := &bytes.Buffer{}
	var any *result
	for _, name := range order {
		if out := r.results[name]; out != nil {
			any = out
			if out.Model != r.sizes().name {
				return nil, fmt.Errorf("results of %s and of %s in one folder, want one", out.Model, r.sizes().name)
			}
		}
	}
	if !any.Hardware || r.tiny() {
		fmt.Fprintf(w, "**This is not hardware, or not the model that counts**: a trial of the measurements themselves on %s (%s). No number says anything about a GPU.\n\n", any.Device, any.Model)
	}
	for _, name := range order {
		if what := r.of(name).Unverified; what != "" {
			fmt.Fprintf(w, "**Unverified: %s** of the kernels' tests on this driver when %s was measured.\n\n", what, name)
			break
		}
	}
	fmt.Fprintf(w, "%s, %.1f GB; %s. %s, `%s`: random bf16 weights in the shape of %s", any.Device, float64(any.Memory)/1e9, any.Driver, any.Date, r.command, any.Model)
	for _, name := range []string{"prefill", "ttft", "decode", "train"} {
		if c := r.of(name).Cache; c != "" {
			fmt.Fprintf(w, ", keys and values in %s", c)
			break
		}
	}
	fmt.Fprint(w, ". Times are medians after a warm-up, by the device's events; those of decoding by the wall clock. Floating-point operations are counted causally.\n\n")

	bars := r.bars()
	met, missed := 0, 0
	for _, b := range bars {
		switch {
		case !b.measured:
		case b.met:
			met++
		default:
			missed++
		}
	}
	fmt.Fprintf(w, "### Bars\n\n%d met, %d missed, %d not measured.\n\n", met, missed, len(bars)-met-missed)
	t := newTable(w, "bar", "wanted", "measured", "")
	for _, b := range bars {
		got := b.got
		if !b.measured {
			got = "–"
		}
		t.row(b.what, b.want, got, b.verdict())
	}

	for _, name := range []string{"tests", "models"} {
		if tests := r.of(name).Tests; tests != nil && tests.Passed+tests.Failed > 0 {
			fmt.Fprintf(w, "\nTests on this driver (%s): %d passed, %d failed, %d skipped, %d not run, %.0f s.\n",
				strings.Join(tests.Binaries, ", "), tests.Passed, tests.Failed, tests.Skipped, tests.NotRun, tests.Seconds)
		}
	}
	if c := r.of("ceilings").Ceilings; c != nil {
		fmt.Fprintf(w, "\n### Ceilings\n\nDevice-to-device copy %.0f GB/s, read and written; bf16 product of %d³ by cuBLASLt %.1f TFLOP/s.", c.CopyGBs, c.Product, c.ProductTFLOPs)
		if r.peer.Ceilings.CopyGBs > 0 {
			fmt.Fprintf(w, " PyTorch: %.0f GB/s, %.1f TFLOP/s. The larger ones count.", r.peer.Ceilings.CopyGBs, r.peer.Ceilings.ProductTFLOPs)
		}
		fmt.Fprintln(w)
		if len(c.Weights) > 0 {
			r.writeWeights(w, c.Weights)
		}
	}
	for _, name := range order {
		if e := r.of(name).Error; e != "" {
			line, _, _ := strings.Cut(e, "\n")
			fmt.Fprintf(w, "\nPart %s ended with an error: %s\n", name, line)
		}
	}
	r.writeKernels(w)
	r.writePrefill(w)
	r.writeTTFT(w)
	r.writeDecode(w)
	r.writeTrain(w)
	r.writeBatch(w)
	switch {
	case r.peer.Skipped != "":
		fmt.Fprintf(w, "\nPyTorch was not run: %s.\n", r.peer.Skipped)
	case r.peer.Version == "":
		fmt.Fprint(w, "\nPyTorch was not run.\n")
	default:
		fmt.Fprintf(w, "\nPyTorch %s, `lab/bench/bench_gpu_pytorch.py`, on the same device in the same run.\n", r.peer.Version)
	}
	return w.Bytes(), nil
}

// table writes Markdown.
type table struct {
	w       io.Writer
	columns int
}

func newTable(w io.Writer, heads ...string) table {
	fmt.Fprintf(w, "| %s |\n|%s\n", strings.Join(heads, " | "), strings.Repeat("---|", len(heads)))
	return table{w, len(heads)}
}

// row writes cells; the last ones may be left out.
func (t table) row(cells ...string) {
	cells = append(cells, make([]string, t.columns-len(cells))...)
	fmt.Fprintf(t.w, "| %s |\n", strings.Join(cells, " | "))
}

// section writes rows as a table with a text before it; nothing without rows.
func section[T any](w io.Writer, text string, rows []T, heads []string, cells func(T) []string) {
	if len(rows) == 0 {
		return
	}
	fmt.Fprint(w, text)
	t := newTable(w, heads...)
	for _, row := range rows {
		t.row(cells(row)...)
	}
}

func number(format string, v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

func gigabytes(n int64) string { return number("%.2f GB", float64(n)/1e9) }
