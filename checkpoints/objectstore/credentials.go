package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
)

// credentials come from the SDK's chain. What fails there is a credentialsError: its causes are of files and servers that
// nobody has named, which must not be taken for causes of the object that is asked for.
type credentials struct {
	aws.CredentialsProvider
	had atomic.Bool // there were some
}

// credentialsError is an error of the SDK's chain, in the words of the settings.
type credentialsError struct {
	text      string
	temporary bool // another attempt may have them
}

func (e *credentialsError) Error() string { return e.text }

// Unwrap is ErrDenied where nothing but another set-up helps.
func (e *credentialsError) Unwrap() error {
	if e.temporary {
		return nil
	}
	return ErrDenied
}

// RetryableError is the SDK's question.
func (e *credentialsError) RetryableError() bool { return e.temporary }

// Retrieve implements aws.CredentialsProvider.
func (c *credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	got, err := c.CredentialsProvider.Retrieve(ctx)
	switch {
	case ctx.Err() != nil:
		return got, ctx.Err()
	case err != nil:
		_, network := errors.AsType[net.Error](err)
		status := statusOf(err)
		return got, &credentialsError{c.explain(err), c.had.Load() && (network || status >= 500 || status == 429)}
	case got.Expired(): // which the SDK sends all the same
		return got, &credentialsError{text: fmt.Sprintf("credentials: %s: they have ended on %s", c.source(), got.Expires.Format("2006-01-02 15:04:05 MST"))}
	}
	c.had.Store(true)
	return got, nil
}

// IsCredentialsProvider is the SDK's question for anonymous credentials.
func (c *credentials) IsCredentialsProvider(other aws.CredentialsProvider) bool {
	return aws.IsCredentialsProvider(c.CredentialsProvider, other)
}

// sources is the part of the SDK's chain that was chosen, outermost last.
func (c *credentials) sources() []aws.CredentialSource {
	if p, ok := c.CredentialsProvider.(aws.CredentialProviderSource); ok {
		return p.ProviderSources()
	}
	return nil
}

// kinds are the parts of the chain that can fail: what sets them up, and what helps.
var kinds = []struct {
	of         []aws.CredentialSource
	name, hint string
}{
	{[]aws.CredentialSource{aws.CredentialSourceProfileSSO, aws.CredentialSourceSSO, aws.CredentialSourceProfileSSOLegacy, aws.CredentialSourceSSOLegacy}, "SSO", `"aws sso login%s" logs in`},
	{[]aws.CredentialSource{aws.CredentialSourceProfileLogin, aws.CredentialSourceLogin}, "login session", `"aws login%s" logs in`},
	{[]aws.CredentialSource{aws.CredentialSourceEnvVarsSTSWebIDToken}, "web identity (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN)", ""},
	{[]aws.CredentialSource{aws.CredentialSourceProfileSTSWebIDToken, aws.CredentialSourceSTSAssumeRoleWebID}, "web identity (web_identity_token_file)", ""},
	{[]aws.CredentialSource{aws.CredentialSourceProfileProcess, aws.CredentialSourceProcess}, "credential_process", ""},
	{[]aws.CredentialSource{aws.CredentialSourceSTSAssumeRole, aws.CredentialSourceProfileSourceProfile}, "role (role_arn)", ""},
	{[]aws.CredentialSource{aws.CredentialSourceHTTP}, "container (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI)", ""},
}

// source says which part of the chain was chosen.
func (c *credentials) source() string {
	name, _ := c.failedSource()
	return name
}

func (c *credentials) failedSource() (name, hint string) {
	profile := cmp.Or(os.Getenv("AWS_PROFILE"), os.Getenv("AWS_DEFAULT_PROFILE"))
	of, option := "", ""
	if profile != "" {
		of, option = fmt.Sprintf("profile %q: ", profile), " --profile "+profile
	}
	for _, k := range kinds {
		if slices.ContainsFunc(c.sources(), func(s aws.CredentialSource) bool { return slices.Contains(k.of, s) }) {
			if hint = k.hint; strings.Contains(hint, "%s") {
				hint = fmt.Sprintf(hint, option)
			}
			return of + k.name, hint
		}
	}
	return strings.TrimSuffix(of, ": "), ""
}

// explain says what of the chain failed, why, and what to do.
func (c *credentials) explain(err error) string {
	cause := strings.Join(strings.Fields(err.Error()), " ")
	if statusOf(err) != 0 {
		cause = said(err)
	} else if address, why, ok := silentServer(err); ok {
		cause = fmt.Sprintf("no answer from %s: %v", address, why)
	}
	for _, before := range []string{"failed to refresh cached credentials, ", "failed to retrieve jwt from provide source, ", "failed to load credentials, ", "process provider error: ", ": "} {
		cause = strings.TrimPrefix(cause, before)
	}
	if at := strings.LastIndex(cause, "operation error "); at > 0 { // of a request that no server has seen
		cause = strings.TrimSuffix(cause[:at], ", ")
	}
	if before, _, found := strings.Cut(cause, "parse failed of process output"); found { // which may have secrets in it
		cause = before + "its output is not the JSON of credentials"
	}
	name, hint := c.failedSource()
	switch {
	case slices.Contains(c.sources(), aws.CredentialSourceIMDS) || len(c.sources()) == 0 && name == "":
		return noCredentials(cause)
	case hint != "":
		return fmt.Sprintf("credentials: %s: %s; %s", name, cause, hint)
	}
	return fmt.Sprintf("credentials: %s: %s", name, cause)
}

// noCredentials says what to set where nothing is, and why a machine's metadata service, which the chain ends with, has none.
func noCredentials(metadata string) string {
	if os.Getenv("AWS_EC2_METADATA_DISABLED") == "true" {
		metadata = "turned off by AWS_EC2_METADATA_DISABLED"
	}
	half := ""
	for _, pair := range [][2]string{{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}, {"AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"}} {
		if os.Getenv(pair[0]) != "" && os.Getenv(pair[1]) == "" {
			half = fmt.Sprintf("; %s is set without %s", pair[0], pair[1])
		}
	}
	return "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (the environment and the files of the AWS command line have none" + half + "; the machine's metadata service: " + metadata + ")"
}

// setupError says what is wrong with the environment and the files of the AWS command line, before anything is asked.
func setupError(err error) error {
	text := err.Error()
	if missing, ok := errors.AsType[config.SharedConfigProfileNotExistError](err); ok {
		text = fmt.Sprintf("profile %q (AWS_PROFILE) is in neither ~/.aws/config nor ~/.aws/credentials", missing.Profile)
	} else if os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "" && os.Getenv("AWS_ROLE_ARN") == "" {
		text = "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is set, want AWS_ROLE_ARN too"
	}
	return &credentialsError{text: "credentials: " + text}
}
