package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"glimpse/internal/train"

	"github.com/spf13/cobra"
)

// runFile is the configuration file of "train run".
type runFile struct {
	Model  string       `json:"model"` // as --model of the other commands; "" is the built-in model
	Data   string       `json:"data"`  // pair file; "" draws synthetic prompts
	Tasks  string       `json:"tasks"`
	Tokens int          `json:"tokens"`
	Outs   []string     `json:"outs"` // adapter folders, one per adapter
	Train  train.Config `json:"train"`
}

func newRun() *cobra.Command {
	s := spec{Config: train.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "run CONFIG.json",
		Short: "Train several adapters, of any kinds, in one pass over the data",
		Long: `Train several adapters, of any kinds, in one pass over the data.

The adapters share each prompt's prefill and target, so every further one costs
only its own rows. The configuration is a JSON object with "model", "data", "tasks",
"tokens", "outs" (adapter folders, one per adapter) and "train": the settings that
every adapter's glimpse.json holds under "training". Settings that the file leaves
out have the defaults of the other commands; unknown ones are errors.`,
		Example: `  train run scripts/shipped_adapters.json`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			file := runFile{Tasks: "default", Tokens: 512, Train: s.Config}
			d := json.NewDecoder(bytes.NewReader(raw))
			d.DisallowUnknownFields()
			if err := d.Decode(&file); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if len(file.Outs) != len(file.Train.Adapters) {
				return fmt.Errorf("%s: outs: got %d folders for %d adapters", args[0], len(file.Outs), len(file.Train.Adapters))
			}
			for i, dir := range file.Outs {
				if dir == "" {
					return fmt.Errorf("%s: outs: folder %d of %d is empty", args[0], i+1, len(file.Outs))
				}
			}
			s.Config = file.Train
			s.model, s.data, s.tasks, s.tokens, s.outs = file.Model, file.Data, file.Tasks, file.Tokens, file.Outs
			s.initTokenSet, s.poolingSet = true, true
			if err := s.run(cmd.Context(), cmd.ErrOrStderr(), cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.device, "device", "cpu", "where to compute")
	f.BoolVar(&s.replace, "replace", false, "replace adapter folders that exist")
	f.StringVar(&s.log, "log", "", "JSONL file of every step's numbers")
	s.bindCheckpoint(f)
	f.Int64Var(&s.Config.CacheMemory, "cache-memory", 0, "bytes of repeated samples' keys, values and targets kept in memory")
	f.Int64Var(&s.Config.CacheDisk, "cache-disk", 0, "bytes of them kept on disk beyond that")
	return cmd
}
