"""Settings of the agents, one class per family, under OGBench's names. Plain data: no JAX.

A setting without a line below it has another default than in the class it comes from, whose line says what it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, Literal

from cta import validation as number
from cta.errors import CtaError


@dataclass(frozen=True)
class AgentConfig:
    """Settings every agent has: optimisation and goal sampling, under OGBench's names."""

    lr: number.Positive = 3e-4
    """Adam's learning rate."""
    batch_size: number.Count = 1024
    """Transitions per step."""
    discount: number.Inside = 0.99
    """γ, of the values and of geometric goal sampling."""
    tau: number.Rate = 0.005
    """Rate of the EMA targets."""
    layer_norm: bool = True
    """Layer norm in values, encoders and bilinear networks (plain actors never have it, see `actor_layer_norm`)."""
    value_p_curgoal: number.Probability = 0.2
    """Probability that a value goal is the current row."""
    value_p_trajgoal: number.Probability = 0.5
    """Probability that a value goal is a later row of the trajectory."""
    value_p_randomgoal: number.Probability = 0.3
    """Probability that a value goal is any row."""
    value_geom_sample: bool = True
    """Later rows at geometric (else uniform) distance for value goals."""
    actor_p_curgoal: number.Probability = 0.0
    """Probability that an actor goal is the current row (flat agents)."""
    actor_p_trajgoal: number.Probability = 1.0
    """Probability that an actor goal is a later row of the trajectory (flat agents)."""
    actor_p_randomgoal: number.Probability = 0.0
    """Probability that an actor goal is any row."""
    actor_geom_sample: bool = False
    """Later rows at geometric (else uniform) distance for actor goals."""
    p_aug: number.Probability = 0.0
    """Probability that a batch of images is randomly cropped (vectors never are)."""

    def check(self) -> None:
        """Complain in one line about values that make no sense."""
        number.check_bounds(self, "--agent.")
        for kind in ("value", "actor"):
            mix = [getattr(self, f"{kind}_p_{goal}goal") for goal in ("cur", "traj", "random")]
            if abs(sum(mix) - 1) > 1e-6:
                raise CtaError(f"--agent.{kind}-p-curgoal, -trajgoal, -randomgoal must add up to 1, not {sum(mix):g}")

    def refuse_unread(self, who: str, settings: Mapping[str, Any]) -> None:
        """Complain about the first setting that is not at this value; `who` says for whom it would change nothing."""
        for path, value in settings.items():
            if reduce(getattr, path.split("."), self) != value:
                raise CtaError(f"{who} --agent.{path.replace('_', '-')}: leave it at {value}")


@dataclass(frozen=True)
class DualConfig:
    """The dual representation learner: Ṽ(s,g) = φ(s)ᵀψ(g)/√d and its critic. Read by conditioning dual, analogy."""

    hidden: number.Sizes = (512, 512, 512)
    """Hidden sizes of φ, ψ and the critic."""
    dim: number.Count = 256
    """d, the dimension of φ and ψ."""
    expectile: number.Inside = 0.7
    """ι."""
    ensemble: number.Count = 2
    """Members of φ, ψ and the critic."""
    scale: Literal["sqrt_d", "none"] = "sqrt_d"
    """Divide the inner product by √d, or not."""
    value_target: Literal["online", "ema"] = "online"
    """Bootstrap the critic from the online φ, ψ or from EMA copies."""
    pretrain_steps: number.Natural = 0
    """0: learn jointly with the agent; n: learn alone for n steps, then freeze and train the agent."""


@dataclass(frozen=True)
class EtaConfig:
    """The projection η of goal representations or analogies."""

    hidden: number.Sizes = (256, 256)
    """Hidden sizes."""
    dim: number.Count = 32
    """e, the output dimension."""
    use: bool = True
    """False: the representation or analogy itself stands for the goal (for raw goals: the goal itself)."""
    normalise: bool = True
    """Scale the output to length √e."""
    ema: bool = False
    """Feed the target value from an EMA copy of η instead of the online one."""


@dataclass(frozen=True)
class TrunkConfig:
    """The bilinear networks. Read by networks bilinear."""

    hidden: number.Sizes = (128, 128)
    """Hidden sizes of the displacement and anchor modules."""
    features: number.Count = 128
    """p, the number of bilinear features."""
    rank: number.Count = 8
    """b, the rank of each bilinear feature."""
    backbone: number.SomeSizes = (128, 128)
    """Sizes of the MLP after the bilinear features."""
    form: Literal["backbone", "head", "pure"] = "backbone"
    """backbone: MLP and linear head on the features; head: linear head only; pure: the features are the output."""
    activate_final: bool = True
    """GELU and layer norm on the modules' last layer too."""


@dataclass(frozen=True)
class GcbConfig:
    """The bisimulation analogy: a pair encoder F(s,g) and a state encoder Ψ that follows. Read by conditioning gcb."""

    hidden: number.Sizes = (512, 512, 512)
    """Hidden sizes of both encoders."""
    dim: number.Count = 256
    """Dimension of both encodings."""
    reward_distance: Literal["huber", "abs"] = "huber"
    """Distance of two rewards: Huber (0 or ½ for rewards −1, 0) or absolute difference."""
    use: Literal["psi", "pair"] = "psi"
    """The analogy of (s,g): Ψ(g)−Ψ(s), or F(s,g) itself (then there is no Ψ)."""


@dataclass(frozen=True)
class ActorConfig(AgentConfig):
    """Agents with a policy network. Behavioural cloning (GCBC) reads nothing of value goals, `layer_norm` and `tau`."""

    hidden: number.Sizes = (512, 512, 512)
    """Hidden sizes of values, critics and policies in MLP form."""
    actor_layer_norm: bool = False
    """Layer norm in MLP policies (bilinear ones follow `layer_norm`)."""
    actor_std: number.Positive = 1.0
    """σ of the policies."""


@dataclass(frozen=True)
class Extraction:
    """How a flat policy is extracted from a value."""

    alpha: number.NotNegative = 1.0
    """AWR: temperature of the advantage weights; DDPG+BC: weight of behavioural cloning."""
    actor_loss: Literal["awr", "ddpgbc"] = "ddpgbc"
    """Advantage-weighted regression, or ascent of Q at the policy's own action plus behavioural cloning."""
    awr_clip: number.Limit = 100.0
    """Upper bound of advantage weights (inf: none)."""


OF_ETA = {"eta.normalise": True, "eta.ema": False, "value_rep_grad_stop": False}
"""Switches that say something about η, and what they are where there is none."""


@dataclass(frozen=True)
class ConditionedConfig(ActorConfig):
    """Agents that leave open what stands for a goal and which form their networks have."""

    conditioning: Literal["raw", "dual", "analogy", "gcb"] = "raw"
    """What stands for a goal: the goal, ψ(g), the dual analogy ψ(g)−ψ(s), or the bisimulation analogy."""
    networks: Literal["mlp", "bilinear"] = "mlp"
    """Form of value and policies: MLP on the concatenation, or bilinear in (condition, state)."""
    value_rep_grad_stop: bool = False
    """True: the value loss does not train η."""
    dual: DualConfig = field(default_factory=DualConfig)
    gcb: GcbConfig = field(default_factory=GcbConfig)
    eta: EtaConfig = field(default_factory=lambda: EtaConfig(use=False))
    trunk: TrunkConfig = field(default_factory=TrunkConfig)

    def check(self) -> None:
        super().check()
        if not self.eta.use:
            self.refuse_unread("without --agent.eta.use nothing reads", OF_ETA)


@dataclass(frozen=True)
class ImplicitValueConfig(ConditionedConfig):
    """Agents with a value learned by implicit value learning."""

    expectile: number.Inside = 0.9
    """κ of the value loss."""
    value_ensemble: number.Count = 2
    """Members of the value."""
    awr_clip: number.Limit = 100.0
    """Upper bound of advantage weights (inf: none)."""


@dataclass(frozen=True)
class GcivlConfig(ImplicitValueConfig):
    """Goal-conditioned implicit value learning with advantage-weighted regression."""

    alpha: number.NotNegative = 10.0
    """Temperature of the advantage weights."""
    share_encoders: bool = False
    """Images, conditioning dual: one encoder of states and one of goals for all networks, trained by all losses."""

    def check(self) -> None:
        super().check()
        if self.share_encoders and self.conditioning != "dual":
            raise CtaError("--agent.share-encoders is for gcivl-dual: only there are states and goals apart")


@dataclass(frozen=True)
class GciqlConfig(Extraction, ConditionedConfig):
    """Goal-conditioned implicit Q-learning."""

    expectile: number.Inside = 0.9
    """κ of the value loss."""

    def check(self) -> None:
        super().check()
        self.refuse_unread("gciql does not read", {"eta.ema": False})


@dataclass(frozen=True)
class CrlConfig(Extraction, ConditionedConfig):
    """Contrastive RL. Its value goals are the positives of the contrast."""

    alpha: number.NotNegative = 3.0
    value_p_curgoal: number.Probability = 0.0
    value_p_trajgoal: number.Probability = 1.0
    value_p_randomgoal: number.Probability = 0.0
    latent_dim: number.Count = 512
    """Dimension of the contrastive features."""
    logit_floor: float | None = None
    """Lower bound of the logits the policy climbs (the CTA authors' code: log 1e-6 ≈ −13.8; None: no bound)."""

    def check(self) -> None:
        # The contrast takes goals as they are: an η would stay as it was drawn.
        self.refuse_unread("crl does not read", {"eta.use": False} | OF_ETA)
        super().check()


@dataclass(frozen=True)
class QrlConfig(Extraction, ActorConfig):
    """Quasimetric RL."""

    alpha: number.NotNegative = 0.3
    value_p_curgoal: number.Probability = 0.0
    value_p_trajgoal: number.Probability = 0.0
    value_p_randomgoal: number.Probability = 1.0
    quasimetric_type: Literal["iqe", "mrn"] = "iqe"
    """Interval quasimetric embedding, or metric residual network."""
    latent_dim: Annotated[number.Count, number.Bounds("be a multiple of 8", lambda dim: dim % 8 == 0)] = 512
    """Dimension of the latents, for IQE a multiple of 8."""
    eps: number.NotNegative = 0.05
    """ε, how much longer than one step a transition may be, squared."""


@dataclass(frozen=True)
class TwoLevelConfig(ImplicitValueConfig):
    """HIQL and everything grown from it: a value, a high policy that proposes subgoals, a low policy that acts."""

    batch_size: number.Count = 256
    conditioning: Literal["raw", "dual", "analogy", "gcb"] = "analogy"
    networks: Literal["mlp", "bilinear"] = "bilinear"
    eta: EtaConfig = field(default_factory=EtaConfig)
    expectile: number.Inside = 0.7
    low_alpha: number.NotNegative = 3.0
    """β_ℓ, temperature of the low policy's advantage weights."""
    high_alpha: number.NotNegative = 3.0
    """β_h, temperature of the high policy's advantage weights."""
    subgoal_steps: number.Count = 20
    """k, how far ahead a subgoal lies."""
    high_hold: number.Count = 1
    """Environment steps a proposed subgoal is kept when acting."""
    bilinear_high_actor: bool = True
    """False: the high policy is a plain MLP on [s; g] (sizes: the trunk's backbone), as it is for raw goals."""
    policy_rep_grad_stop: bool = True
    """False: the low policy's loss trains η too, if there is one (OGBench's `low_actor_rep_grad`)."""
    subgoal_repr_type: Literal["dual", "dual_state"] = "dual"
    """Input of η: the representation, or the state beside it (for raw goals always the state and the goal)."""

    def check(self) -> None:
        super().check()
        raw = self.conditioning == "raw"
        if raw or not self.eta.use:
            self.refuse_unread("without η of a representation nothing reads", {"subgoal_repr_type": "dual"})
        if raw or self.networks == "mlp":
            self.refuse_unread("with raw goals or mlp networks nothing reads", {"bilinear_high_actor": True})
