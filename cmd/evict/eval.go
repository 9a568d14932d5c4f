package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/engine"
	"glimpse/evaluation"
	reports "glimpse/evaluation/report"
	"glimpse/evaluation/runs"
	"glimpse/evaluation/scoring"
	_ "glimpse/evaluation/tasks" // registers them
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/listing"
	"glimpse/internal/outputs"
	"glimpse/internal/printable"
	"glimpse/internal/tables"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// evalFlags are what the command line says beside the job.
type evalFlags struct {
	setup
	config                 string
	budgets                string
	data, tasks, options   []string
	plot, table, json      string
	needle, sweep          string
	asJSON, dryRun, groups bool
}

func newEval() *cobra.Command {
	var e evalFlags
	j := runs.Default()
	cmd := &cobra.Command{
		Use:   "eval",
		Short: "Measure policies on any model: your prompts or benchmarks; quality, memory, hit rates, speed",
		Long: `Measure policies on any model, on your own prompts or on benchmarks, against the full
cache and the oracle: the task's score, critical-KV hit rate, bytes kept and, with --times,
time to first token and decoding speed.

--data takes your own prompts: JSONL, JSON, CSV, TSV or Parquet with "prompt",
"messages" or "prompt_ids". --task names benchmarks instead; without --data and --model
they are the synthetic tasks of the built-in model. Budgets are KV entries per KV head and
layer, or shares of the prompt: 128, 10%, 0.2. --resume goes on with the run in --out.`,
		Annotations: cli.Details(`
--field maps other columns of --data to the usual ones: NAME is id, prompt, text, messages,
prompt_ids, context, answer or metric_options.OPTION. Rows with reference answers are scored
with --metric, which is substring_exact_match where most references are short and else qa_f1; rows
without are measured by what needs none: how far the answer agrees with the full cache's, and
the likelihood of the full cache's answer under eviction. --data may be repeated: every file of
your prompts is a column.

Every prompt is prefilled once for all policies and budgets. Times are measured after the
answers, where --times asks for them, on each task's first prompt: every policy at every budget
up to three times, which can take longer than the answers. What it takes is said before.
Without --policy, those measured are
` + strings.ReplaceAll(runs.DefaultPolicies, ",", ", ") + `;
of a model of yours some others, and the learned ones where there is an adapter. "NAME?" is
left out where there is none for it. "full" is reported once, without a
budget. "snapkv:quest" is two policies as rocketkv's two stages: the first keeps part of
the prompt, the second reads as much as the budget of it. A policy may have options of its
own: "snapkv,snapkv(kernel=1)".

--out keeps everything in a folder: predictions.jsonl, metrics.json, timings.json, the
configuration and the versions. A run that was stopped goes on with --resume, sample by
sample. A sample that fails is named at the end, with exit status 1, and the others go on, unless
--strict is given.
Any number of processes of the same command share a run, through a folder or s3://BUCKET/NAME
that all of them reach: each measures the samples that are free, and those of one that was killed
are free again. The last one makes the results and prints them. --shards N lets processes end
when nothing is free, and --shard I/N takes one sample in N.

--needle-plot is of a task that varies depth and length, as niah, at every budget, or else
of needles of the synthetic tasks at the smallest budget. --sweep-plot shows the scores of
a sweep's adapters, and with --times what they add to the time to first token, by their rows
and modules; --adapter is then the folder of "train sweep".

` + modelDetails),
		Example: `  evict eval --policy full,snapkv,lookaheadkv --budget 32,128 --samples 4
  evict eval --policy all --budget 64 --task section --samples 2 --json
  evict eval --model path/to/llama --data prompts.jsonl --policy laq,tova -o out/prompts --resume
  evict eval --config scripts/examples/eval.yaml --model org/name`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.runJob(cmd, j) },
	}
	f := cmd.Flags()
	e.bindMeasured(f, j)
	f.StringVar(&e.config, "config", "", "YAML file with models, policies, budgets and tasks; flags override it")
	f.StringArrayVar(&e.tasks, "task", nil, "tasks, comma-separated (see evict tasks); TASK/SUBTASK is one part, TASK/all are all")
	f.StringArrayVar(&e.options, "task-option", nil, "option of a task, as TASK.OPTION=VALUE; may be repeated")
	f.StringVar(&j.Split, "split", "", "split of the synthetic tasks: train, validation or test (default test)")
	f.IntVar(&j.Tokens, "tokens", 0, "length of prompts that tasks make; 0 is the task's own")
	f.BoolVar(&j.ContextFirst, "context-first", false, "evict what several questions are about before any is known (scbench, leval, qmsum)")
	j.Sampling.Bind(f)
	f.StringVar(&j.Agreement, "agreement", j.Agreement, "compare answers with the full cache's: on, off, or auto for samples without a reference")
	f.StringVar(&j.Times, "times", j.Times, "also measure ttft (time to first token) or all (and speed)")
	f.IntVar(&j.Inspect, "inspect", j.Inspect, "prompts per task for which --out records what every policy keeps, for evict report")
	f.IntVar(&j.Shards, "shards", 0, "parts of the run, which workers with the same --out take as they are free")
	f.StringVar(&j.Shard, "shard", "", "part of the run to do alone, as I/N with I from 0")
	f.BoolVar(&e.dryRun, "dry-run", false, "say which prompts there are, what is missing, and about what time and memory it takes, and stop")
	f.BoolVar(&e.asJSON, "json", false, "print JSON: an object with schema and rows")
	f.BoolVar(&e.groups, "groups", false, "also print results of each group of samples: length, depth, difficulty")
	f.StringVar(&e.json, "json-out", "", "file for the results as JSON; \"-\" is standard output")
	f.StringVar(&e.table, "table-out", "", "file for the table of results, Markdown if it ends in .md; \"-\" is standard output")
	f.StringVar(&e.plot, "plot", "", "file for a plot of score against budget: .png, .svg or .pdf")
	f.StringVar(&e.needle, "needle-plot", "", "file for heat maps of the score by needle depth and prompt length: .png, .svg or .pdf")
	f.StringVar(&e.sweep, "sweep-plot", "", "file for a plot of the adapters of a train sweep, --adapter DIR: .png, .svg or .pdf")
	cli.Everyday(cmd, "model", "adapter", "device", "data", "metric", "task", "samples", "tokens", "policy", "budget", "times", "out", "resume", "json")
	return cmd
}

// bindMeasured adds the flags of prompts, policies and budgets to measure, and of the output.
func (e *evalFlags) bindMeasured(f *pflag.FlagSet, j *runs.Job) {
	e.setup.addFlags(f)
	f.Lookup("heads").Usage = "how KV heads share a budget: equal, layer, global, shipped or FILE of train budgets; empty: equal"
	e.bindChat(f)
	f.StringArrayVar(&e.data, "data", nil, "your prompts or the task's data: file, folder, s3://BUCKET/NAME or \"-\" (standard input)")
	f.StringArrayVar(&j.Fields, "field", nil, "columns of --data: NAME=PATH,…, NAME=TEMPLATE or a data set, as squad; may be repeated")
	f.StringSliceVar(&j.Metrics, "metric", nil, "metrics that score answers against their references (see evict tasks)")
	f.StringVar(&e.Policies, "policy", "", "policies, comma-separated, or all (see evict policies); empty is a choice of common ones")
	f.StringVar(&e.budgets, "budget", "", "budgets, comma-separated; empty is 32,64,96,128 for the built-in model, else 5%,10%,20%,50%")
	f.IntVar(&j.Samples, "samples", 0, "prompts per task; 0 is all of --data, or 32 where the task makes them")
	f.IntVar(&j.MaxPrompt, "max-prompt", 0, "most tokens of a prompt; 0 is what the model takes")
	f.StringVar(&j.Truncate, "truncate", "", "what is cut from prompts over --max-prompt: middle, left, or none, which fails them (default none or the task's)")
	f.IntVar(&j.MaxNew, "max-new", 0, "most tokens of an answer; 0 is the task's own")
	f.BoolVar(&j.Raw, "raw", false, "do not put prompts into the model's chat template")
	f.IntVar(&j.Batch, "batch", j.Batch, "evicted caches that are decoded together")
	f.IntVar(&j.Concurrent, "concurrency", 0, "prompts worked on at the same time; 0 is one per thread for a small model, else 1")
	f.BoolVar(&j.Strict, "strict", false, "end the run at the first sample that fails")
	f.StringVarP(&j.Out, "out", "o", "", "folder for predictions, metrics and configuration")
	f.BoolVar(&j.Resume, "resume", false, "go on with the run in --out; policies, budgets and adapters are added")
	f.BoolVar(&j.Accept, "accept-changed-data", false, "with --resume or --shards, go on although the data have changed since the run was begun")
	j.Files.Bind(f)
}

// resolveJob makes one job of the file and the flags.
func (e *evalFlags) resolveJob(cmd *cobra.Command, j *runs.Job) error {
	given := cli.GivenFlags(cmd.Flags())
	if e.config != "" {
		if err := j.Read(e.config, nil, given.Repeat); err != nil {
			return err
		}
	}
	// What the command line says stands over the file, and what it leaves to defaults does where there is no file.
	for _, o := range []struct {
		name string
		set  func()
	}{
		{"policy", func() {
			if j.Policies = nil; e.Policies != "" {
				j.Policies = runs.Names{e.Policies}
			}
		}},
		{"device", func() { j.Device = e.Device }},
		{"cache-dtype", func() { j.CacheDType = e.CacheDType }},
		{"exact", func() { j.Exact = e.Exact }},
		{"set", func() { j.Set = e.Set }},
		{"seed", func() { j.Seed = e.Seed }},
		{"chat-template", func() { j.ChatTemplate = e.ChatTemplate }},
		{"chat-option", func() { j.ChatOptions = e.ChatOptions }},
		{"chat-date", func() { j.ChatDate = e.ChatDate }},
		{"s3-endpoint", func() { j.S3.Endpoint = e.S3.Endpoint }},
		{"s3-region", func() { j.S3.Region = e.S3.Region }},
		{"s3-path-style", func() { j.S3.PathStyle = e.S3.PathStyle }},
	} {
		if e.config == "" || given.Given(o.name) {
			o.set()
		}
	}
	j.S3.Notice = e.S3.Notice
	if e.budgets != "" {
		var err error
		if j.Budgets, err = eviction.ParseBudgets(e.budgets); err != nil {
			return err
		}
	}
	if err := e.setTasks(given, j); err != nil {
		return err
	}
	for _, name := range j.Metrics {
		if _, err := scoring.Metrics.Lookup(name); err != nil {
			return fmt.Errorf("--metric: %w", err)
		}
	}
	if err := e.setOptions(j); err != nil {
		return err
	}
	return e.setModel(given, j)
}

// setTasks puts --task and --data into the job.
func (e *evalFlags) setTasks(given cli.Given, j *runs.Job) error {
	if len(e.tasks) > 0 {
		j.Tasks = nil
		for _, t := range e.tasks {
			j.Tasks = append(j.Tasks, runs.Task{Task: t})
		}
	}
	if !given.Given("data") {
		return nil
	}
	if err := e.setData(j); err != nil {
		return err
	}
	takes := len(j.Tasks) == 0
	for _, t := range j.Tasks {
		selections, err := evaluation.ParseTasks(t.Task)
		if err != nil {
			return err
		}
		takes = takes || slices.ContainsFunc(selections, func(s evaluation.Selection) bool { return s.Task.Data != "" })
	}
	if !takes {
		return errors.New("--data: no --task takes data; your own prompts are --task data")
	}
	return nil
}

// setModel puts --model and what belongs to a model into the job.
func (e *evalFlags) setModel(given cli.Given, j *runs.Job) error {
	if given.Given("model") || len(j.Models) == 0 {
		j.Models = []runs.Subject{{Model: e.Model}}
	}
	for _, name := range []string{"adapter", "draft", "pattern", "heads"} {
		if given.Given(name) && len(j.Models) > 1 {
			return fmt.Errorf("--%s with %d models: say in the file which model it is of", name, len(j.Models))
		}
	}
	m := &j.Models[0]
	if e.config == "" || given.Given("adapter") {
		m.Adapters, m.AdaptersByDefault = e.Adapters, len(e.Adapters) > 0 && !given.Given("adapter")
	}
	if given.Given("draft") {
		m.Drafts = e.Drafts
	}
	if given.Given("pattern") {
		m.Pattern = e.Pattern
	}
	if given.Given("heads") {
		m.Heads = e.Heads
	}
	return nil
}

// setData puts --data to the tasks: one to all of them, several to one task data for each.
func (e *evalFlags) setData(j *runs.Job) error {
	if j.Data = e.data[0]; len(e.data) == 1 {
		return nil
	}
	own := runs.Task{Task: "data"}
	switch {
	case len(j.Tasks) == 0:
	case len(j.Tasks) == 1 && j.Tasks[0].Task == own.Task && j.Tasks[0].Data == "":
		own = j.Tasks[0]
	default:
		return fmt.Errorf("--data: got %d, want one where --task is another than data; a file for --config gives every task its own", len(e.data))
	}
	j.Data, j.Tasks = "", nil
	for _, data := range e.data {
		own.Data = data
		j.Tasks = append(j.Tasks, own)
	}
	return nil
}

// setOptions puts --task-option to the tasks they are of.
func (e *evalFlags) setOptions(j *runs.Job) error {
	for _, o := range e.options {
		task, assignment, ok := strings.Cut(o, ".")
		if !ok {
			return fmt.Errorf("--task-option %q: want TASK.OPTION=VALUE", o)
		}
		found := false
		for i := range j.Tasks {
			selections, err := evaluation.ParseTasks(j.Tasks[i].Task)
			if err != nil {
				return err
			}
			if slices.ContainsFunc(selections, func(s evaluation.Selection) bool { return s.Task.Name == task }) {
				j.Tasks[i].Options, found = append(j.Tasks[i].Options, assignment), true
			}
		}
		if !found {
			return fmt.Errorf("--task-option %q: no --task %s", o, task)
		}
	}
	return nil
}

func (e *evalFlags) runJob(cmd *cobra.Command, j *runs.Job) error {
	if err := e.resolveJob(cmd, j); err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	if err := cli.ShareOutput(cmd, j.Out); err != nil && !e.dryRun {
		return err
	}
	files := &j.Files
	for _, data := range append(e.data, j.Data) {
		files.Input(data)
	}
	defer files.Close()
	if e.dryRun {
		return j.Describe(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	jsonOut, tableOut := files.Open("--json-out", e.json), files.Open("--table-out", e.table)
	plotOut, needleOut := files.Open("--plot", e.plot), files.Open("--needle-plot", e.needle)
	plotFormat, plotErr := pictureFormat("--plot", e.plot)
	needleFormat, needleErr := pictureFormat("--needle-plot", e.needle)
	sweepOut, points, sweepErr := e.openSweep(j)
	if err := errors.Join(files.Err(), plotErr, needleErr, sweepErr); err != nil {
		return fmt.Errorf("eval: %w", err)
	}
	out, err := j.Run(cmd.Context(), cmd.ErrOrStderr())
	if out == nil {
		return err
	}
	rows := evaluation.Overall(out.Rows)
	shown := rows
	if e.groups {
		shown = out.Rows
	}
	if len(rows) == 0 {
		return err
	}
	// What was measured is printed and written whatever becomes of the run and of the files.
	err = errors.Join(err,
		jsonOut.Write(func(w io.Writer) error { return evaluation.WriteJSON(w, shown) }),
		tableOut.Write(func(w io.Writer) error {
			return writeTables(w, rows, reports.TableOptions{Markdown: strings.HasSuffix(e.table, ".md")})
		}),
		plotOut.Write(func(w io.Writer) error { return reports.PlotAccuracy(w, plotFormat, rows) }),
		sweepOut.Write(func(w io.Writer) error {
			format, _ := pictureFormat("--sweep-plot", e.sweep)
			return reports.PlotSweep(w, format, rows, points)
		}),
	)
	switch {
	case e.json == "-" || e.table == "-": // standard output has what was asked for
	case e.asJSON:
		err = errors.Join(err, evaluation.WriteJSON(cmd.OutOrStdout(), shown))
	case e.groups:
		err = errors.Join(err, writeGroups(cmd.OutOrStdout(), out.Rows))
	default:
		err = errors.Join(err, writeTables(cmd.OutOrStdout(), rows, reports.TableOptions{}))
	}
	e.say(cmd.ErrOrStderr(), out)
	if err != nil || !needleOut.Wanted() {
		return errors.Join(err, failures(out))
	}
	var cells []reports.NeedleCell
	if maps := reports.NeedleMaps(out.Rows); len(maps) > 0 {
		cells = reports.NeedleCells(maps)
	} else if cells, err = needle(cmd, j); err != nil {
		return err
	}
	err = needleOut.Write(func(w io.Writer) error { return reports.PlotNeedle(w, needleFormat, cells) })
	return errors.Join(err, failures(out))
}

// failures is an error where samples failed, or policies on them, which are named.
func failures(out *runs.Outcome) error {
	if out.Failed == 0 {
		return nil
	}
	return fmt.Errorf("eval: %d of %d samples failed and count nowhere, the others were measured:\n%w", len(out.Failures), out.Samples, listing.JoinErrors(out.Failures))
}

// openSweep opens the file for the plot of a sweep; there must be exactly one.
func (e *evalFlags) openSweep(j *runs.Job) (out *outputs.File, points []checkpoints.SweepPoint, err error) {
	_, err = pictureFormat("--sweep-plot", e.sweep)
	out = j.Files.Open("--sweep-plot", e.sweep)
	if e.sweep == "" || err != nil {
		return out, nil, err
	}
	var sweeps []string
	for _, m := range j.Models {
		sweeps = append(sweeps, slices.DeleteFunc(slices.Clone(m.Adapters), func(a string) bool { return !engine.IsSweep(a) })...)
	}
	if len(sweeps) != 1 || len(j.Models) != 1 {
		return out, nil, fmt.Errorf("--sweep-plot: got %d sweeps of %d models, want one --adapter that is the folder of train sweep", len(sweeps), len(j.Models))
	}
	points, err = checkpoints.ReadSweep(sweeps[0])
	return out, points, err
}

// say tells on standard error what the table does not.
func (e *evalFlags) say(w io.Writer, out *runs.Outcome) {
	if out.Caches > out.Prompts {
		fmt.Fprintf(w, "%d prompts were prefilled once for %d caches, which saved about %.1f s\n", out.Prompts, out.Caches, out.Saved.Seconds())
	}
	whole := func(r evaluation.Row) bool { return r.Budget.Share() == 0 && r.Budget.Of(r.Tokens) >= r.Tokens }
	if i := slices.IndexFunc(out.Rows, whole); i >= 0 {
		fmt.Fprintf(w, "budget %v is not below the %d tokens of prompts of task %s: nothing is evicted of them\n", out.Rows[i].Budget, out.Rows[i].Tokens, out.Rows[i].Task)
	}
}

// writeTables writes the rows of every model.
func writeTables(w io.Writer, rows []evaluation.Row, o reports.TableOptions) error {
	models := listing.Group(rows, func(r evaluation.Row) string { return r.Model })
	o.Columns = tables.Columns(w)
	for _, own := range models {
		if len(models) > 1 {
			if err := printable.Heading(w, fmt.Sprintf("Model %s\n\n", own[0].Model)); err != nil {
				return err
			}
		}
		if err := errors.Join(reports.WriteTable(w, own, o), reports.WriteMeasures(w, own, o)); err != nil {
			return err
		}
	}
	return nil
}

// writeGroups writes a table for all samples and one for every group.
func writeGroups(w io.Writer, rows []evaluation.Row) error {
	name := func(r evaluation.Row) string { return evaluation.GroupsName(r.Groups) }
	for _, group := range listing.Group(rows, name) {
		if err := printable.Heading(w, cmp.Or(name(group[0]), "All samples")+"\n\n"); err != nil {
			return err
		}
		for i := range group {
			group[i].Groups = nil
		}
		if err := writeTables(w, group, reports.TableOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// needle asks for the one fact of prompts of four lengths, at the smallest budget.
func needle(cmd *cobra.Command, j *runs.Job) ([]reports.NeedleCell, error) {
	const quarters = 4
	n := *j
	n.Out, n.Times, n.Resume = "", string(evaluation.TimesNone), false
	n.Budgets = []eviction.Budget{slices.MinFunc(j.Budgets, eviction.Budget.Compare)}
	tokens := cmp.Or(j.Tokens, 512)
	var lengths []string
	for q := 1; q <= quarters; q++ {
		if length := tokens * q / quarters; length >= max(64, n.Budgets[0].Of(length)) {
			lengths = append(lengths, fmt.Sprint(length))
		}
	}
	n.Tasks = []runs.Task{{Task: "needle", Options: []string{"lengths=" + strings.Join(lengths, ",")}}}
	out, err := n.Run(cmd.Context(), cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	maps := reports.NeedleMaps(out.Rows)
	if len(maps) == 0 {
		return nil, errors.New("eval: --needle-plot: no prompt was measured")
	}
	return slices.DeleteFunc(maps[0].Cells, func(c reports.NeedleCell) bool { return c.Policy == "full" || c.Policy == "oracle" }), nil
}
