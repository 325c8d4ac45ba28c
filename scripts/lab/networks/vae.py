"""A variational autoencoder together with its loss."""

import onnx

from lab.networks.builder import NetworkBuilder, draw_weights, make_generator
from ranum_falsify.model_builder import Tensor

__all__ = ["vae"]

PIXELS, HIDDEN, LATENT = 64, 32, 8


def vae() -> onnx.ModelProto:
    """A variational autoencoder with reconstruction and Kullback-Leibler loss (Kingma, Welling 2014).

    ``loss = -sum(x log p + (1 - x) log(1 - p)) - 0.5 sum(1 + logvar - mu^2 - exp(logvar))`` with
    ``p = sigmoid(decoder(mu + exp(0.5 logvar) epsilon))``.
    """
    g = NetworkBuilder("vae", "Variational autoencoder with its loss; epsilon is the noise.")
    rng = make_generator(3)

    def dense(tensor: Tensor, n_in: int, n_out: int, gain: float, name: str) -> Tensor:
        weights = draw_weights(rng, (n_in, n_out), n_in, gain)
        return g.dense(tensor, weights, draw_weights(rng, (n_out,), 1, 0.1), name)

    image = g.input("x", (1, PIXELS), 0, 1)
    noise = g.input("epsilon", (1, LATENT), -3, 3)
    code = g.node("Relu", dense(image, PIXELS, HIDDEN, 1.4, "encoder"), name="encoder_relu")
    mu = dense(code, HIDDEN, LATENT, 1.0, "mu")
    logvar = dense(code, HIDDEN, LATENT, 1.0, "logvar")
    half = g.node("Mul", logvar, g.weight("half", 0.5), name="half_logvar")
    std = g.node("Exp", half, name="std_exp")
    latent = g.node("Add", mu, g.node("Mul", std, noise, name="scaled_noise"), name="latent")
    hidden = g.node("Relu", dense(latent, LATENT, HIDDEN, 1.4, "decoder"), name="decoder_relu")
    pixels = dense(hidden, HIDDEN, PIXELS, 1.2, "pixels")
    p = g.node("Sigmoid", pixels, name="pixels_sigmoid", out="reconstruction")
    one = g.weight("one", 1.0)
    loss = g.node("Add", _cross_entropy(g, image, p, one), _divergence(g, mu, logvar, one), name="loss_add", out="loss")
    g.output(p, (1, PIXELS))
    g.output(loss, (1,))
    g.hazard("log_p", "image and noise that drive a pixel below -15.9, where Sigmoid is 0 on ONNX Runtime")
    g.hazard("log_not_p", "image and noise that drive a pixel above 17, where Sigmoid rounds to 1")
    free = "logvar_W free in [-50, 50]: "
    g.hazard("std_exp", free + "a log-variance above 177 overflows the deviation")
    g.hazard("variance_exp", free + "a log-variance above 88.8 overflows the variance")
    return g.build()


def _cross_entropy(g: NetworkBuilder, image: Tensor, p: Tensor, one: Tensor) -> Tensor:
    log_p = g.node("Log", p, name="log_p")
    log_not_p = g.node("Log", g.node("Sub", one, p, name="not_p"), name="log_not_p")
    lit = g.node("Mul", image, log_p, name="lit_terms")
    dark = g.node("Mul", g.node("Sub", one, image, name="not_x"), log_not_p, name="dark_terms")
    total = g.reduce_sum(g.node("Add", lit, dark, name="terms"), 1, "likelihood")
    return g.node("Neg", total, name="reconstruction_loss")


def _divergence(g: NetworkBuilder, mu: Tensor, logvar: Tensor, one: Tensor) -> Tensor:
    variance = g.node("Exp", logvar, name="variance_exp")
    mu_squared = g.node("Mul", mu, mu, name="mu_squared")
    gain = g.node("Add", one, logvar, name="one_plus_logvar")
    cost = g.node("Add", mu_squared, variance, name="mu_squared_plus_variance")
    total = g.reduce_sum(g.node("Sub", gain, cost, name="kl_terms"), 1, "kl_sum")
    return g.node("Mul", total, g.weight("minus_half", -0.5), name="kl_loss")
