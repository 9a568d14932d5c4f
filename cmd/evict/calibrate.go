package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/evaluation/calibration"
	reports "glimpse/evaluation/report"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/cli"
	"glimpse/internal/figures"
	"glimpse/internal/listing"
	"glimpse/internal/stdin"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
)

// Defaults of evict calibrate.
const (
	calibrateBudgets  = "80%,60%,40%,25%,15%,10%,5%"
	calibratePolicies = engine.WithoutAdapter + "," + engine.WithAdapter + "?"
	calibrationChart  = "calibration.svg"
)

// calibrateFlags are what the command line says beside the job.
type calibrateFlags struct {
	evalFlags
	calibration.Promise
	document string
}

func newCalibrate() *cobra.Command {
	c := calibrateFlags{Promise: calibration.Promise{Promise: eviction.Promise{Loss: eviction.Loss{Name: eviction.LossNLL, Clip: 1}, Epsilon: 0.05, Confidence: 0.95}}}
	j := runs.Default()
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Find the smallest budget, and its policy, that loses at most so much on prompts like yours",
		Long: `Find the smallest budget, and its policy, whose expected loss against the full cache is at
most --epsilon on prompts like yours, with the confidence that --confidence asks for.

The loss is how much less likely the full cache's own answer gets (nll, nats per token),
how much of the score against your reference answers is lost (accuracy, a share), or how
far answers differ from the full cache's (agreement, 1 − token F1). Some 100 to 300 prompts
of yours do; how many it takes at least is said at once. --out has the run, a chart, and
calibration.json, which "--budget calibrated:DIR" of run, chat and serve takes.`,
		Annotations: cli.Details(`
It is an evaluation (evict eval) of --data, with the full cache beside the policies, and then a
test: every policy's budgets from the largest down, until one is not certified (Learn then Test,
arXiv:2110.01052), each by a bound for means that adapts to how much losses vary (betting,
arXiv:2010.09686). What is left of the confidence is divided equally among policies, so that every
one more makes it harder. --resume goes on with a run that was stopped, and tests a finished one
for another --epsilon without measuring anything again.

Prompts about one document count as one: --document names the field that tells them apart, which
is document, document_id, doc_id or context where all rows have it. Without any, prompts are about
one document if they begin alike for half of the shorter one; what all begin with, as instructions,
does not count. Losses of nats are clipped to ±--clip per token, and the promise is about clipped
ones. An answer that fails under eviction counts as all lost.

All budgets of a prompt share its prefill, so that they are measured together. Where prompts are
short beside their answers the smaller half waits: it is not measured unless a policy passes the
larger half.

The promise is about prompts that come from where these came from, and not about every single one.
"evict serve --verify-share" watches it on live traffic.

` + modelDetails),
		Example: `  evict calibrate --model path/to/llama --data prompts.jsonl --epsilon 0.5 --max-new 16 -o out/cal`,
		Args:    cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.run(cmd, j); err != nil {
				return fmt.Errorf("calibrate: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	c.bindMeasured(f, j)
	f.StringVar(&c.Loss.Name, "loss", c.Loss.Name, "what may be lost: "+strings.Join(eviction.Losses(), ", "))
	f.Float64Var(&c.Epsilon, "epsilon", c.Epsilon, "most that may be expected to be lost: nats per token, or a share")
	f.Float64Var(&c.Confidence, "confidence", c.Confidence, "probability with which the promise is kept, at least")
	f.Float64Var(&c.Loss.Clip, "clip", c.Loss.Clip, "nats per token that a loss is clipped to, both ways, of --loss nll")
	f.StringVar(&c.document, "document", "", "field of the rows that names what a prompt is about; rows with the same value count once")
	f.BoolVar(&c.asJSON, "json", false, "print JSON: an object with schema, lines and what was chosen")
	for name, usage := range map[string]string{
		"policy": "policies to choose from, comma-separated (see evict policies); empty is " + calibratePolicies,
		"budget": "budgets to choose from, comma-separated, all shares or all numbers; empty is " + calibrateBudgets,
		"data":   "your prompts: file or folder; may be repeated",
		"out":    "folder for the run, " + checkpoints.CalibrationFile + " and " + calibrationChart,
	} {
		f.Lookup(name).Usage = usage
	}
	cli.Group(cmd, "Promise", "loss", "epsilon", "confidence", "clip", "document")
	cli.Everyday(cmd, "model", "adapter", "device", "data", "policy", "budget", "loss", "epsilon", "confidence", "out", "resume", "json")
	return cmd
}

// run measures, tests and tells.
func (c *calibrateFlags) run(cmd *cobra.Command, j *runs.Job) error {
	if c.budgets == "" {
		c.budgets = calibrateBudgets
	}
	if c.Policies == "" {
		c.Policies = calibratePolicies
	}
	names, err := c.check(j)
	if err != nil {
		return err
	}
	c.Policies = engine.Lossless + "," + c.Policies
	if err := c.resolveJob(cmd, j); err != nil {
		return err
	}
	j.Policies, j.Agreement = runs.Names{c.Policies}, string(evaluation.AgreementOn)
	if c.Loss.Name == eviction.LossAccuracy {
		j.Agreement = string(evaluation.AgreementAuto)
	}
	for _, data := range c.data {
		j.Files.Input(data)
	}
	log := cmd.ErrOrStderr()
	documents, err := calibration.ReadDocuments(cmd.Context(), c.data, j.Fields, c.document, j.Samples)
	if err != nil {
		return err
	}
	if err := c.tellNeeds(log, documents, len(names)); err != nil {
		return err
	}
	result, found, err := c.measure(cmd, j, documents, len(names))
	if err != nil {
		return err
	}
	return c.tell(cmd, j, result, found)
}

// check refuses what no model can make right, and returns the names of the policies.
func (c *calibrateFlags) check(j *runs.Job) ([]string, error) {
	names, err := engine.PolicyNames(c.Policies)
	if err != nil {
		return nil, err
	}
	budgets, err := eviction.ParseBudgets(c.budgets)
	if err != nil {
		return nil, err
	}
	share := func(b eviction.Budget) bool { return b.Share() > 0 }
	switch {
	case len(c.data) == 0:
		return nil, errors.New("--data: got none, want prompts of yours")
	case slices.Contains(c.data, stdin.Name) || slices.ContainsFunc(c.data, objectstore.IsURL):
		return nil, fmt.Errorf("--data: got %s, want files or folders of this machine, which are read twice", strings.Join(c.data, ", "))
	case j.Out == "" || objectstore.IsURL(j.Out):
		return nil, fmt.Errorf("--out: got %q, want a folder of this machine for the run and %s", j.Out, checkpoints.CalibrationFile)
	case slices.Contains(names, engine.Lossless):
		return nil, fmt.Errorf("--policy: %s is what others are measured against, want those to choose from", engine.Lossless)
	case slices.Contains(names, "oracle") || slices.Contains(names, "exact-topk"):
		return nil, errors.New("--policy: oracle and exact-topk are bounds that no server can run, want others")
	case slices.ContainsFunc(budgets, share) && slices.ContainsFunc(budgets, func(b eviction.Budget) bool { return !share(b) }):
		return nil, fmt.Errorf("--budget: got %s, want all of them as shares or all as numbers: they are tested from the largest down", c.budgets)
	}
	return names, c.Promise.Check()
}

// tellNeeds says what is promised and how many documents that takes. Too few are an error.
func (c *calibrateFlags) tellNeeds(log io.Writer, d *calibration.Documents, policies int) error {
	least := c.Promise.Documents(policies)
	fmt.Fprintf(log, "to certify: %s, with %.4g%% confidence\n", c.promise(), 100*c.Confidence)
	by := "told by how prompts begin"
	if d.By != "" {
		by = fmt.Sprintf("told by the field %q", d.By)
	}
	fmt.Fprintf(log, "%s about %s, %s\n", listing.Count(d.Prompts, "prompt"), listing.Count(d.Count, "document"), by)
	if d.Common >= 64 {
		fmt.Fprintf(log, "all prompts begin with the same %d bytes: the promise is about prompts that do\n", d.Common)
	}
	if d.Count < least {
		return fmt.Errorf("%s can certify nothing: it takes %d, even if nothing is lost on any of them, for %s; give more prompts, a larger --epsilon, fewer policies or a lower --confidence",
			listing.Count(d.Count, "document"), least, policiesText(policies))
	}
	fmt.Fprintf(log, "it takes at least %d documents, if nothing is lost on any of them, for %s", least, policiesText(policies))
	if d.Count < 3*least/2 {
		fmt.Fprint(log, "; with so few more only a budget that loses next to nothing will do")
	}
	fmt.Fprintln(log)
	return nil
}

func policiesText(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

// promise is what is certified, in words.
func (c *calibrateFlags) promise() string {
	text := fmt.Sprintf("an expected loss of at most %.4g %s against the full cache (%s", c.Epsilon, c.Loss.Unit(), c.Loss.Name)
	if c.Loss.Name == eviction.LossNLL {
		text += fmt.Sprintf(", clipped to ±%.4g", c.Loss.Clip)
	}
	return text + ")"
}

// found is what else is known of the measurements.
type found struct {
	*calibration.Measured
	about *runs.AboutModel
}

// measure runs the evaluation, in one or two stages, and tests what comes of it.
func (c *calibrateFlags) measure(cmd *cobra.Command, j *runs.Job, d *calibration.Documents, policies int) (*calibration.Result, *found, error) {
	log := cmd.ErrOrStderr()
	stages := calibration.Stages(j.Budgets, policies, d.Bytes/max(1, int64(d.Prompts)), j.MaxNew)
	if len(stages) > 1 {
		fmt.Fprintf(log, "prompts are short beside their answers: budgets below %v are measured where a policy passes that one\n", stages[0][len(stages[0])-1])
	}
	for i, budgets := range stages {
		stage := *j
		if stage.Budgets = budgets; i > 0 {
			stage.Resume = true
			fmt.Fprintf(log, "stage %d of %d: %s\n", i+1, len(stages), new(eviction.Budgets(budgets)).String())
		}
		out, err := stage.Run(cmd.Context(), log)
		if err != nil {
			return nil, nil, err
		}
		if out != nil && len(out.Failures) > 0 {
			fmt.Fprintf(log, "%d of %d prompts failed, in whole or under a policy; the first: %v\n", len(out.Failures), out.Samples, out.Failures[0])
		}
		j.Models, j.Contents, j.Tasks, j.Policies = stage.Models, stage.Contents, stage.Tasks, stage.Policies
		f, err := c.read(cmd.Context(), &stage, d)
		if err != nil {
			return nil, nil, err
		}
		result := c.Certify(f.Cells, 0)
		if i == len(stages)-1 || !result.Open() {
			if i < len(stages)-1 {
				fmt.Fprintf(log, "no policy passes %v: the smaller budgets are not measured\n", budgets[len(budgets)-1])
			}
			return result, f, nil
		}
	}
	panic("calibrate: no stage")
}

// read takes the measurements of the run's folder.
func (c *calibrateFlags) read(ctx context.Context, j *runs.Job, d *calibration.Documents) (*found, error) {
	stored, err := runs.Read(ctx, j.Out, 0, j.S3)
	if err != nil {
		return nil, err
	}
	if !stored.Finished {
		return nil, fmt.Errorf("the run in %s is not finished: other processes are at it; the same command with --resume tests it when they are done", j.Out)
	}
	if stored.Environment == nil || len(stored.Environment.Models) != 1 {
		return nil, fmt.Errorf("%s does not tell which model was measured", j.Out)
	}
	file := func(task string) int {
		i := slices.IndexFunc(j.Tasks, func(t runs.Task) bool { return t.Name == task })
		return max(0, i)
	}
	m, err := c.Measure(stored.Predictions, func(task string, index int) int {
		return d.Of(file(task), index)
	})
	if err != nil {
		return nil, err
	}
	return &found{m, &stored.Environment.Models[0]}, nil
}

// tell prints the result and writes its files.
func (c *calibrateFlags) tell(cmd *cobra.Command, j *runs.Job, r *calibration.Result, f *found) error {
	log, path := cmd.ErrOrStderr(), filepath.Join(j.Out, checkpoints.CalibrationFile)
	if f.Failed > 0 {
		fmt.Fprintf(log, "%s could not be answered with the full cache and count nowhere\n", listing.Count(f.Failed, "prompt"))
	}
	if f.Lost > 0 {
		fmt.Fprintf(log, "%s failed under eviction and count as all lost\n", listing.Count(f.Lost, "answer"))
	}
	err := atomicfile.Write(filepath.Join(j.Out, calibrationChart), func(w io.Writer) error { return reports.PlotLosses(w, figures.SVG, r) })
	if c.asJSON {
		err = errors.Join(err, c.writeJSON(cmd, r))
	} else {
		w := cmd.OutOrStdout()
		err = errors.Join(err, reports.WriteLosses(w, r, tables.Columns(w)))
	}
	if r.Chosen == nil {
		if gone := os.Remove(path); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return errors.Join(err, fmt.Errorf("no budget is certified to keep %s on %s: a larger budget or --epsilon, or more prompts, may", c.promise(), listing.Count(r.Documents, "document")))
	}
	certificate, certificateErr := c.certificate(j, r, f)
	if err = errors.Join(err, certificateErr); err != nil {
		return err
	}
	if err := certificate.Write(path); err != nil {
		return err
	}
	fmt.Fprintf(log, "%s %v is certified; \"evict serve --budget calibrated:%s\" keeps it\n", r.Chosen.Label(), r.Chosen.Budget, j.Out)
	return nil
}

// certificate is what was certified, as it is stored.
func (c *calibrateFlags) certificate(j *runs.Job, r *calibration.Result, f *found) (*checkpoints.Calibration, error) {
	l := r.Chosen
	at := slices.IndexFunc(f.about.Policies, func(p runs.AboutPolicy) bool { return p.Policy == l.Policy && p.Adapter == l.Adapter })
	if at < 0 {
		return nil, fmt.Errorf("the run in %s does not tell the settings of %s", j.Out, l.Label())
	}
	policy := f.about.Policies[at]
	out := &checkpoints.Calibration{
		ModelName: f.about.Name, ModelSHA256: f.about.SHA256,
		Policy: l.Policy, Settings: policy.Settings, Budget: l.Budget.String(), Adapter: l.Adapter, AdapterSHA256: policy.AdapterSHA256,
		Heads: j.Models[0].Heads,
		Loss:  c.Loss.Name, Epsilon: c.Epsilon, Confidence: c.Confidence,
		MeanLoss: l.Mean, UpperBound: r.Upper(l), Documents: len(l.Losses), Prompts: l.Prompts, Policies: r.Policies,
		Date: time.Now().UTC().Format(time.DateOnly),
	}
	if out.Settings == nil {
		out.Settings = map[string]float64{}
	}
	if c.Loss.Name == eviction.LossNLL {
		out.Clip = c.Loss.Clip
	}
	if i := slices.IndexFunc(f.about.Companions, func(c datasets.Content) bool { return c.File == engine.HeadsCompanion }); i >= 0 {
		out.HeadsSHA256 = f.about.Companions[i].SHA256
	}
	for _, data := range j.Contents {
		out.Data = append(out.Data, checkpoints.CalibrationData{File: data.File, SHA256: data.SHA256})
	}
	return out, nil
}

// calibrationLine is a line as JSON has it.
type calibrationLine struct {
	Policy     string  `json:"policy"`
	Adapter    string  `json:"adapter,omitempty"`
	Budget     string  `json:"budget"`
	Documents  int     `json:"documents"`
	Prompts    int     `json:"prompts"`
	MeanLoss   float64 `json:"mean_loss"`
	UpperBound float64 `json:"upper_bound"`
	Certified  string  `json:"certified"`
}

func (c *calibrateFlags) writeJSON(cmd *cobra.Command, r *calibration.Result) error {
	line := func(l calibration.Line) calibrationLine {
		return calibrationLine{l.Policy, l.Adapter, l.Budget.String(), len(l.Losses), l.Prompts, l.Mean, r.Upper(&l), string(l.Verdict)}
	}
	out := struct {
		Schema     string            `json:"schema"`
		Loss       string            `json:"loss"`
		Unit       string            `json:"unit"`
		Clip       float64           `json:"clip,omitempty"`
		Epsilon    float64           `json:"epsilon"`
		Confidence float64           `json:"confidence"`
		Policies   int               `json:"policies"`
		Documents  int               `json:"documents"`
		Lines      []calibrationLine `json:"lines"`
		Chosen     *calibrationLine  `json:"chosen"`
	}{"glimpse.calibration/1", r.Loss.Name, r.Loss.Unit(), 0, r.Epsilon, r.Confidence, r.Policies, r.Documents, listing.Map(r.Lines, line), nil}
	if r.Loss.Name == eviction.LossNLL {
		out.Clip = r.Loss.Clip
	}
	if r.Chosen != nil {
		out.Chosen = new(line(*r.Chosen))
	}
	return cli.WriteJSON(cmd, out)
}
