package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"glimpse/engine"
	"glimpse/internal/bytesize"
	"glimpse/internal/cli"
	"glimpse/internal/version"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/serving"

	"github.com/spf13/cobra"
)

// The bounds of connections.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = time.Minute
	idleTimeout   = 2 * time.Minute
	maxHeader     = 64 << 10
	abortTimeout  = 3 * time.Second // for answers that are ended to be told so
)

// serveCommand is evict serve with its flags.
type serveCommand struct {
	setup
	config                      serving.Config
	listen, name                string
	keys, admins                string
	cert, key                   string
	memory, prefix              bytesize.Size
	dirSize, contextSize, limit bytesize.Size
	drain                       time.Duration
	logJSON                     bool
	fullBelow                   int
}

func newServe() *cobra.Command {
	s := serveCommand{dirSize: 20 << 30, contextSize: 20 << 30, limit: 1 << 30}
	c := &s.config
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a model over OpenAI's HTTP API, with the caches of its sessions whole or evicted",
		Long: `Serve a model over OpenAI's HTTP API, with the caches of its sessions whole or evicted.

Clients of OpenAI's API talk to it at http://ADDRESS/v1: chat completions, completions and
responses, streamed or not. Every session keeps its whole cache unless --policy, or a
request, names a policy that evicts: then each holds what that keeps, so that more of them
fit the memory, and answers may differ. The first tokens that prompts have in common run
once: their keys and values are shared, and every session evicts a copy of its own.`,
		Annotations: cli.Details(`
The log says which policy there is for the model, lookaheadkv where it has an adapter.
A request may say another policy, budget or adapter in "eviction": {"policy", "budget",
"adapter"}, or in the name of the model: NAME@POLICY:BUDGET. Requests that find no room in
--memory wait, --queue of them at most; further ones are answered with 429. A request that
can never fit is refused with the numbers. SIGTERM lets the answers that have begun go on
for --drain; a second one ends them.

--record writes prompts and answers as token ids, in the format of "train generate", which
"train lookahead --data" takes: an adapter for the traffic that was served. --verify-share and
--shadow work when there is nothing to answer, a unit at a time, and are given up when a
request comes: /metrics tells as verified_agreement, by policy and budget, how much of a greedy
answer the full cache says, too, up to the first difference, and as shadow_hit_rate which share
of what answers attend to is kept by the policy that gave them and by the second adapter.
Requests with the header X-Glimpse-Record: off are left out of all three. With --budget calibrated
what is verified also tests the promise of evict calibrate, of requests that name no budget:
calibration_loss, calibration_loss_bound and calibration_broken; /health says so, too.

` + modelDetails),
		Example: `  evict serve --model path/to/llama --listen 0.0.0.0:8080 --keys keys.txt
  evict serve --model path/to/llama --adapter adapters/llama --policy lookaheadkv --budget 25%`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	s.addFlags(f)
	s.bindChat(f)
	f.StringVar(&s.Policies, "policy", engine.Lossless, "eviction policy (see evict policies) of requests that name none")
	s.bindCalibrated(f, &c.Budget, "prompt", 0)
	bindKeep(f, &c.Keep, "system,tools")
	c.Choice.From = model.SamplingOfModel
	c.Choice.Bind(f)
	f.StringVar(&s.listen, "listen", "127.0.0.1:8080", "address to listen at, as HOST:PORT")
	f.StringVar(&s.name, "served-model-name", "", "name of the model in requests; empty is its file's or folder's")
	f.IntVar(&c.MaxNew, "max-new", 1024, "most tokens of an answer where a request does not say")
	f.IntVar(&s.fullBelow, "full-below", shortPrompt, "keep all of prompts of fewer tokens, where a request names no budget")
	f.IntVar(&c.Rows, "max-num-seqs", 8, "most answers that are decoded together")
	f.IntVar(&c.Queue, "queue", 1024, "most answers that wait; further ones are refused with 429")
	f.Var(&s.memory, "memory", "memory of all sessions and shared prefixes, as 8GiB; default: what is free beside the weights, less a tenth")
	f.Var(&s.prefix, "prefix-cache", "most of it that shared prefixes take, as 2GiB; 0 shares nothing; default: a quarter")
	f.StringVar(&c.PrefixDir, "prefix-dir", "", "folder that keeps shared prefixes, so that a document that was read yesterday begins at once")
	f.StringVar(&c.ContextDir, "context-dir", "", "folder that keeps compressed contexts and their names, so that a document that was compressed yesterday answers at once")
	f.Var(&s.contextSize, "context-dir-size", "most bytes of that folder")
	f.BoolVar(&c.SharedPrefixes, "shared-prefixes", false, "share prefixes and contexts among all API keys; else each key has its own, so that none can tell what another has asked")
	f.Var(&s.dirSize, "prefix-dir-size", "most bytes of that folder")
	f.DurationVar(&c.MaxGap, "max-gap", 200*time.Millisecond, "longest time that prompts of others may add between two tokens of an answer, as far as a unit of a prompt is shorter")
	f.StringVar(&c.Record, "record", "", "folder or s3://BUCKET/NAME to write prompts and answers to, as data for train; empty writes none")
	f.Float64Var(&c.RecordShare, "record-share", 1, "share of the answers that --record writes, 0 to 1")
	f.Var(&s.limit, "record-limit", "most that --record lets the folder hold, as 1GiB; what comes then is not written")
	f.Float64Var(&c.VerifyShare, "verify-share", 0, "share of the greedy answers to give once more with the full cache when idle, 0 to 1")
	f.StringVar(&c.OnBreach, "on-breach", serving.BreachLog, "when --verify-share shows that a calibrated budget loses more than promised: log, or full: keep everything from then on")
	f.StringVar(&c.Shadow, "shadow", "", "second adapter to compare hit rates with when idle, as --adapter takes it, or the NAME of one of these")
	f.Float64Var(&c.ShadowShare, "shadow-share", 0.05, "share of the answers that --shadow is compared on, 0 to 1")
	f.Int64Var(&c.MaxBody, "max-body", 8<<20, "most bytes of a request")
	f.BoolVar(&c.StrictFields, "strict-fields", false, "refuse requests with fields that change nothing here, which are else ignored and named in the answer's header")
	f.StringVar(&c.ReasoningFormat, "reasoning-format", "auto", "where thoughts before an answer are told: auto or deepseek, as reasoning_content, or none, in the content")
	f.StringVar(&s.keys, "keys", "", "file of API keys, one a line, of which requests must have one")
	f.StringVar(&s.admins, "admin-keys", "", "file of API keys that may load and unload adapters, too; without any key whoever is at this machine may")
	f.StringArrayVar(&c.AdapterDirs, "adapter-dir", nil, "folder or s3:// name below which adapters may be loaded while the server runs; repeatable")
	f.DurationVar(&c.AdapterTimeout, "adapter-timeout", serving.DefaultAdapterTimeout, "longest time that an adapter may take to be loaded then")
	f.StringSliceVar(&c.AllowedHosts, "allowed-hosts", nil, "names that a server without keys may be called by beside those of this machine, commas between; * is any")
	f.StringArrayVar(&c.CORSOrigins, "cors-origin", nil, "origin whose web pages may use the server, as https://chat.example.org, or * for all with --keys; repeatable")
	f.StringVar(&s.cert, "tls-cert", "", "certificate chain for TLS, PEM")
	f.StringVar(&s.key, "tls-key", "", "its key, PEM")
	f.DurationVar(&s.drain, "drain", 30*time.Second, "how long answers that have begun may go on after SIGTERM")
	f.BoolVar(&s.logJSON, "log-json", false, "log as JSON lines")
	cli.Everyday(cmd, "model", "adapter", "device", "policy", "budget", "listen", "memory", "max-num-seqs", "keys")
	return cmd
}

// run serves until a signal.
func (s *serveCommand) run(cmd *cobra.Command) error {
	c, given := &s.config, cli.GivenFlags(cmd.Flags())
	var handler slog.Handler = slog.NewTextHandler(cmd.ErrOrStderr(), nil)
	if s.logJSON {
		handler = slog.NewJSONHandler(cmd.ErrOrStderr(), nil)
	}
	if err := s.applyCalibration(cmd); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	c.Log, c.Version, c.Budget = slog.New(handler), version.String(), c.Budget.WholeBelow(s.fullBelow)
	server := &http.Server{ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	if err := s.check(server, given); err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	defer listener.Close()
	tellLossy(c.Log, s.Policies, c.Budget)
	if host, _, _ := net.SplitHostPort(listener.Addr().String()); len(c.Keys)+len(c.AdminKeys) == 0 && !net.ParseIP(host).IsLoopback() {
		c.Log.Warn("everybody who reaches the address may use the server: --keys takes a file of API keys", "address", listener.Addr().String())
	}
	var serve atomic.Pointer[serving.Server]
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ready := serve.Load(); ready != nil {
			ready.ServeHTTP(w, r)
			return
		}
		serving.Loading(w, r)
	})
	accepted := serving.Listen(server, listener)
	served := make(chan error, 1)
	go func() {
		if server.TLSConfig != nil {
			served <- server.ServeTLS(accepted, "", "")
		} else {
			served <- server.Serve(accepted)
		}
	}()
	m, err := s.openModel(cmd, func(m *model.Model) error {
		if _, err := m.NeedTokenizer(); err != nil {
			return fmt.Errorf("serve: %w", err)
		}
		if err := m.NeedChatTemplate(); err != nil {
			c.Log.Warn("chats are refused, texts are completed", "because", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	ready, err := s.begin(m, given)
	if err != nil {
		m.Close()
		return err
	}
	tellModels(c.Log, s.Model)
	serve.Store(ready)
	url := urlOf(listener.Addr(), s.cert != "")
	c.Log.Info("serving", "address", listener.Addr().String(), "url", url, "api", url+"/v1", "model", c.Name, "device", kernels.DeviceOf(m.Backend), "policy", ready.Standard().NameWithAdapter(), "heads", ready.Standard().HeadSharing())
	return errors.Join(wait(cmd.Context(), server, ready, served, s.drain, c.Log), ready.Close())
}

// check reads the files that flags name, and refuses what no server can have.
func (s *serveCommand) check(server *http.Server, given cli.Given) (err error) {
	c := &s.config
	if c.Keys, err = readKeys(c.Log, "--keys", s.keys); err != nil {
		return err
	}
	if c.AdminKeys, err = readKeys(c.Log, "--admin-keys", s.admins); err != nil {
		return err
	}
	if err := c.Validate(); err != nil {
		return err
	}
	if (s.cert == "") != (s.key == "") {
		return errors.New("--tls-cert and --tls-key: want both or none")
	} else if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			return fmt.Errorf("--tls-cert %s, --tls-key %s: %w", s.cert, s.key, err)
		}
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	if err := c.Choice.Check(); err != nil {
		return err
	}
	if err := serving.CheckReasoningFormat(c.ReasoningFormat); err != nil {
		return fmt.Errorf("--reasoning-format: %w", err)
	}
	for name, share := range map[string]float64{"record-share": c.RecordShare, "verify-share": c.VerifyShare, "shadow-share": c.ShadowShare} {
		if !(share >= 0 && share <= 1) {
			return fmt.Errorf("--%s: got %g, want 0 to 1", name, share)
		}
	}
	if given.Given("budget") && !given.Given("policy") && !s.calibrated.asked {
		return fmt.Errorf("--budget %v without --policy: the whole cache is kept, want --policy %s where there is an adapter for the model, or %s", &c.Budget, engine.WithAdapter, engine.WithoutAdapter)
	}
	return nil
}

// begin makes the server of a model, which requests may then be sent to.
func (s *serveCommand) begin(m *engine.Model, given cli.Given) (*serving.Server, error) {
	c := &s.config
	policy, err := m.PolicyWith(s.Policies, "") // requests may name others, which take what else was given
	if err != nil {
		return nil, err
	}
	if err := s.promise(m, policy, given); err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	if c.Name = s.name; c.Name == "" {
		if c.Name, err = servedName(s.Model, m.Name); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	c.Policy, c.Seed = policy.Title(), s.Seed
	c.Memory, c.Prefix, c.PrefixDirSize, c.ContextDirSize = int64(s.memory), int64(s.prefix), int64(s.dirSize), int64(s.contextSize)
	c.RecordLimit, c.S3 = int64(s.limit), s.S3
	why := "as --memory says"
	if !given.Given("memory") {
		if c.Memory, why, err = roomFor(m.Model, *c); err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	if !given.Given("prefix-cache") {
		c.Prefix = c.Memory / 4
	}
	m.OnRoundedKeys(func(of *model.RoundedKeys) {
		if text := of.Warning(); text != "" {
			c.Log.Warn(text)
		}
	})
	ready, err := serving.New(m, *c)
	if err != nil {
		return nil, fmt.Errorf("serve: %w", err)
	}
	tellLossless(c.Log, m, ready.Standard(), c.Budget)
	tellIdle(c.Log, ready.Standard().Title(), given.Given)
	c.Log.Info("memory", "sessions_and_shared_prefixes", bytesize.FormatMemory(c.Memory), "shared_prefixes", bytesize.FormatMemory(c.Prefix), "why", why, "change", "--memory SIZE --prefix-cache SIZE")
	return ready, nil
}

// readKeys reads API keys, a line each, and warns where others may read or change them.
func readKeys(log *slog.Logger, flag, path string) (keys []string, err error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	const others = 0o006
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&others != 0 && runtime.GOOS != "windows" { // which has other permissions
		log.Warn("everybody on this machine may read or change the file of API keys: want chmod o-rw", "file", path, "mode", info.Mode().Perm().String())
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key := strings.TrimSpace(lines.Text()); key != "" && key[0] != '#' {
			keys = append(keys, key)
		}
	}
	if err = lines.Err(); err == nil && len(keys) == 0 {
		err = errors.New("got no key, want one a line")
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return keys, nil
}

// wait serves until an error or the end of ctx, after which answers may go on for a while. A signal that comes meanwhile
// ends the program.
func wait(ctx context.Context, server *http.Server, ready *serving.Server, served <-chan error, drain time.Duration, log *slog.Logger) error {
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	log.Info("draining", "for", drain)
	ready.Drain()
	going, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	if server.Shutdown(going) == nil {
		return nil
	}
	log.Info("ending the answers that go on")
	ready.AbortAnswers()
	last, done := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer done()
	if server.Shutdown(last) != nil {
		server.Close()
	}
	return nil
}
